// The terminal's table of rows that only move bytes: a line for each working set, a column for each movement.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

// One table for each device; empty without such rows.
std::string bandwidth_table(const Studies& studies);

}  // namespace gable::bench::report
