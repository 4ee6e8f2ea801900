// Extends a kernel that takes NHWC and fuses only a 2x2 pool to NCHW and every max-pool: tensors are reordered into the
// workspace and back, and other pools are a separate pass. The description names both, with the bytes they move.
//
// Bias and activation stay in the kernel before the pool: rounding and activations are monotone, so the maximum may
// come last.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

/// The problem that is left for the kernel: NHWC, without a pool or with one of 2x2.
Conv2dProblem without_reorders(const Conv2dProblem& problem);

/// Elements from a pixel to the next of the kernel's tensors, where it wants more than their channels. A max-pool in a
/// pass of its own has none.
struct PixelPitches {
  std::int64_t x = 0, y = 0;  // 0: the channels
};

/// Estimated time of the passes before and after the kernel.
double reorder_seconds(const Conv2dProblem& problem, const PixelPitches& pitches = {});

/// `kernel` is a plan of without_reorders(problem).
std::unique_ptr<Conv2dPlan> with_reorders(const Conv2dProblem& problem, std::unique_ptr<Conv2dPlan> kernel,
                                          const PixelPitches& pitches = {});

/// A kernel (see conv2d_plan.h) that takes every layout and pool because `Kernel` runs between reorders.
template <typename Kernel>
struct WithReorders {
  static constexpr std::size_t kAlignment = Kernel::kAlignment;

  static std::string missing(const cudaDeviceProp& device) requires requires { Kernel::missing(device); }
  { return Kernel::missing(device); }
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return Kernel::refusal(without_reorders(problem), device);
  }
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) requires requires {
    Kernel::seconds(problem, device);
  }
  { return Kernel::seconds(without_reorders(problem), device) + reorder_seconds(problem); }
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return with_reorders(problem, Kernel::make(without_reorders(problem), device));
  }
};

}  // namespace gable::cuda
