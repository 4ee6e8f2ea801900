// study.csv: one row a measurement, for spreadsheets and data frames.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

// RFC 4180 (CRLF, quotes where needed, UTF-8). Columns are only ever added, at the end. Numbers have 17 significant
// digits at most and read back exactly; what was not measured is empty.
std::string csv(const Studies& studies);

}  // namespace gable::bench::report
