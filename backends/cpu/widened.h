// Convolutions of f16 and bf16 NHWC images by an f32 kernel: the input is widened into the plan's workspace, the
// fastest f32 kernel computes the output there, and the output is narrowed into y. A pass takes as many images as stay
// in L2. Each element of input and output is converted once; kernels that convert what each tile reads convert more if
// windows or groups overlap.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/weighted_kernels.h"

namespace gable {

/// Why no kernel can compute the op this way; empty if one can.
std::string refuse_widened(const WeightedOp& op, const cpu::Target& target);

/// How long a run will last, in seconds. Precondition: refuse_widened() is empty.
double widened_seconds(const WeightedOp& op, const CpuPlace& place);

/// Precondition: refuse_widened() is empty.
std::unique_ptr<PlanImpl> make_widened_plan(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
