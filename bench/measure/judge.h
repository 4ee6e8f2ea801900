// Finds what bounds a row and checks whether its numbers are possible.
#pragma once

#include <functional>
#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/record/row.h"
#include "perfcounters/machine.h"

namespace gable::bench {

/// Sets each row's verdict: the consistency rules that it breaks and, under its device's ceilings, what bounds it and
/// how much of its roof it reaches. Counted or simulated traffic is compared with the bandwidth of its level. Analytic
/// traffic of warm tensors that fit a cache is compared with that cache's bandwidth. Returns the greatest percentage.
double judge_rows(std::vector<Row>& rows, const MachineCeilings& ceilings, const perf::Machine& machine);

/// The same. If a row exceeds a roof, another program ran while the roof was measured: `again` measures once more, and
/// the higher of both is kept.
void judge_or_measure_again(std::vector<Row>& rows, MachineCeilings& ceilings, const perf::Machine& machine,
                            const std::function<MachineCeilings()>& again);

}  // namespace gable::bench
