// Convolutions of NCHW images by an NHWC kernel: the input is reordered into the plan's workspace, the fastest NHWC
// kernel computes the output there, and the output is reordered into y. Each element of input and output is read and
// written once more. With groups or few pixels this costs less than the lanes that vectors of pixels would leave empty.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/weighted_kernels.h"

namespace gable {

/// Why no kernel can compute the op this way; empty if one can.
std::string refuse_reordered(const WeightedOp& op, const cpu::Target& target);

/// How long a run will last, in seconds. Precondition: refuse_reordered() is empty.
double reordered_seconds(const WeightedOp& op, const CpuPlace& place);

/// Precondition: refuse_reordered() is empty.
std::unique_ptr<PlanImpl> make_reordered_plan(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
