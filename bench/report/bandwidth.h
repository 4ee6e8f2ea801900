// Rows that only move bytes, for the terminal: a line a working set, a column a movement.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

// A table a device; empty without such rows.
std::string bandwidth_table(const Studies& studies);

}  // namespace gable::bench::report
