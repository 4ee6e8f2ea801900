// 1x1 convolutions of few output channels on the tensor cores of sm_80 and later (mma.sync), for f16, bf16 and f32 as
// tf32. Made for layers that memory bounds: every pixel goes from device memory to registers and back, in accesses of
// up to 16 bytes, without a stage in shared memory and without a barrier.
//
// A warp takes 32 pixels and up to 64 output channels. The order of the terms of a sum is free, and so is the order of
// a product's columns. So a lane's operands of two products are 16 neighbouring bytes of a pixel's channels, and its
// sums of four products are eight neighbouring channels of the output. Weights lie in shared memory. The next 64 bytes
// of each pixel's channels are on their way while the current ones are multiplied.
#pragma once

#include "cuda/ops/with_reorders.h"

namespace gable::cuda {

/// NHWC, one group, no padding, no pool; channels on both sides in multiples of four bytes.
struct Pointwise {
  static constexpr std::size_t kAlignment = 16;

  static std::string missing(const cudaDeviceProp& device);
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using PointwiseConv2d = Conv2dKernel<Pointwise>;

}  // namespace gable::cuda
