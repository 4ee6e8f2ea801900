// What bounds a row, and whether its numbers can be true.
#pragma once

#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/record/row.h"
#include "perfcounters/machine.h"

namespace gable::bench {

/// Sets each row's verdict: the consistency rules that it breaks and, under its device's ceilings, what bounds it and
/// how much of its roof it reaches. Counted or simulated traffic is held against the bandwidth of its level; the
/// analytic traffic of warm tensors that fit a cache against that cache's. Returns the greatest percentage of a roof.
double judge_rows(std::vector<Row>& rows, const MachineCeilings& ceilings, const perf::Machine& machine);

}  // namespace gable::bench
