// Convolutions of NHWC images whose windows tile each row: the horizontal stride is the window's width, and nothing is
// padded on the left. The pixels of a row that a window reads are neighbours in memory, so a row of W pixels of C
// channels is one of W / S pixels of S*C channels as well, and no data moves. A window is then one column wide, and few
// channels become many: the patches of a vision transformer have 16 x 3 = 48. Weights take that order as they are
// packed. The fastest kernel computes the result.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/weighted_kernels.h"

namespace gable {

/// Why no kernel can compute the op this way; empty if one can.
std::string refuse_folded(const WeightedOp& op, const cpu::Target& target);

/// How long a run will last, in seconds. Precondition: refuse_folded() is empty.
double folded_seconds(const WeightedOp& op, const CpuPlace& place);

/// Precondition: refuse_folded() is empty.
std::unique_ptr<PlanImpl> make_folded_plan(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
