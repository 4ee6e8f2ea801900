// Convolution with groups of a few to some dozen channels on the f32 units (see grouped.cu): strict f32 in NHWC; bias
// and activation in registers. Other layouts and pools run between reorders.
#pragma once

#include "cuda/ops/with_reorders.h"

namespace gable::cuda {

struct Grouped {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using GroupedConv2d = Conv2dKernel<WithReorders<Grouped>>;

}  // namespace gable::cuda
