// Convolutions whose window has rows or columns that read padding alone, whatever the output: a 1x21 window with a
// padding of 10 over images of 4 columns has 14 of them. The convolution by the other taps is the same one with less
// padding. Its weights are fewer and lie together, where kernels that skip padding taps would jump over the others. The
// fastest kernel computes the result.
#pragma once

#include <memory>
#include <string>

#include "backends/cpu/weighted_kernels.h"

namespace gable {

/// The convolution by the taps that some output reads the image with.
Conv2dProblem without_unread_taps(const Conv2dProblem& problem);

/// Why no kernel can compute the op this way; empty if one can.
std::string refuse_cropped(const WeightedOp& op, const cpu::Target& target);

/// How long a run will last, in seconds. Precondition: refuse_cropped() is empty.
double cropped_seconds(const WeightedOp& op, const CpuPlace& place);

/// Precondition: refuse_cropped() is empty.
std::unique_ptr<PlanImpl> make_cropped_plan(const WeightedOp& op, const CpuPlace& place);

}  // namespace gable
