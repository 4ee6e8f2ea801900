// Convolutions of f16 and bf16 NHWC images by a kernel of f32: the input is widened into the plan's workspace, the
// fastest kernel of f32 computes the output there, and that is narrowed into y, as many images at a time as stay in L2.
// An element costs one conversion on either side; kernels that convert what each tile reads pay more where windows or
// groups overlap.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/weighted_kernels.h"

namespace gable {

/// Why no kernel computes the op so; empty: one does.
std::string refuse_widened(const WeightedOp& op, const cpu::Target& target);

/// How long a run will last, in seconds. Precondition: refuse_widened() is empty.
double widened_seconds(const WeightedOp& op, const CpuPlace& place);

/// Precondition: refuse_widened() is empty.
std::unique_ptr<PlanImpl> make_widened_plan(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
