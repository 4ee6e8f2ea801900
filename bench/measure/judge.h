// Finds what bounds a row and checks whether its numbers are possible.
#pragma once

#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/record/row.h"
#include "perfcounters/machine.h"

namespace gable::bench {

/// Sets each row's verdict: the consistency rules that it breaks and, under its device's ceilings, what bounds it and
/// how much of its roof it reaches. A row above 102 % of its roof has a flag that says what may be wrong. Counted or
/// simulated traffic is compared with the bandwidth of its level. Analytic traffic of warm tensors that fit a cache is
/// compared with that cache's bandwidth. Returns the greatest percentage.
double judge_rows(std::vector<Row>& rows, const MachineCeilings& ceilings, const perf::Machine& machine);

}  // namespace gable::bench
