// study.csv: one row for each measurement, for spreadsheets and data frames.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

// RFC 4180 (CRLF, quotes where needed, UTF-8). Columns are only ever added, at the end. Numbers have 17 significant
// digits at most and read back exactly; values that were not measured are empty.
std::string csv(const Studies& studies);

}  // namespace gable::bench::report
