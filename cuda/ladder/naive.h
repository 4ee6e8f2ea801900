// The first step of the ladder: one thread computes one element of the (pooled) output, straight from global memory.
// It runs every problem, so it is the fallback if every other kernel refuses.
//
// Each multiply-add reads both its operands: 8 bytes of f32 for 2 FLOP, from whatever cache holds them. Overlapping
// pooling windows compute their shared elements again.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct Naive {
  static constexpr std::size_t kAlignment = 1;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using NaiveConv2d = Conv2dKernel<Naive>;

}  // namespace gable::cuda
