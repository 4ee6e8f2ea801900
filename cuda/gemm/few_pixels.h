// 1x1 convolutions of at most eight pixels, such as the vectors between a squeeze and an excitation at batch 1: a
// matrix times a few vectors, on the f32 units. Their time is the latency of a launch and of one load.
//
// A warp has one output channel. Its lanes load 16 bytes each of the channel's weights and of every pixel, several
// steps of 32 lanes together, multiply and add them up by shuffles. Nothing is staged and no block waits for another.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

/// One group, no padding, no pool, no strides.
struct FewPixels {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using FewPixelsConv2d = Conv2dKernel<FewPixels>;

}  // namespace gable::cuda
