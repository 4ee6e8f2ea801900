// study.csv: one row for each measurement, for spreadsheets and data frames.
#pragma once

#include <string>
#include <string_view>

#include "bench/report/study.h"

namespace gable::bench::report {

// RFC 4180 (CRLF, quotes where needed, UTF-8). Columns are only ever added, at the end. Numbers have 17 significant
// digits at most and read back exactly; values that were not measured are empty.
std::string csv(const Studies& studies);

// A text as a cell: with an apostrophe before it where a spreadsheet would run it as a formula.
std::string cell_text(std::string_view text);

}  // namespace gable::bench::report
