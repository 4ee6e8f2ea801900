// Convolution with groups of a few to some dozen channels on the tensor cores of sm_80 and later (see grouped_mma.cu):
// f16, bf16, and f32 as tf32, in NHWC; bias and activation in registers. Other layouts and pools run between reorders.
#pragma once

#include "cuda/ops/with_reorders.h"

namespace gable::cuda {

struct GroupedMma {
  static constexpr std::size_t kAlignment = 16;

  static std::string missing(const cudaDeviceProp& device);
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using GroupedMmaConv2d = Conv2dKernel<WithReorders<GroupedMma>>;

}  // namespace gable::cuda
