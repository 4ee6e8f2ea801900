// Convolutions of NCHW images by a kernel of NHWC: the input is reordered into the plan's workspace, the fastest kernel
// of NHWC computes the output there, and that is reordered into y. An element is read and written once more on either
// side; for groups, few pixels and the like that is less than what vectors of pixels leave empty.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/weighted_kernels.h"

namespace gable {

/// Why no kernel computes the op so; empty: one does.
std::string refuse_reordered(const WeightedOp& op, const cpu::Target& target);

/// How long a run will last, in seconds. Precondition: refuse_reordered() is empty.
double reordered_seconds(const WeightedOp& op, const CpuPlace& place);

/// Precondition: refuse_reordered() is empty.
std::unique_ptr<PlanImpl> make_reordered_plan(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
