// Depthwise 3x3 convolution, stride 1 or 2, each tensor touched once: a thread goes down a strip of the image with the
// weights and the sums of two or three output rows in registers, so that an input row is loaded once for all of them.
// Lanes are vectors of channels (nhwc) or neighbouring columns (nchw).
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct Depthwise {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using DepthwiseConv2d = Conv2dKernel<Depthwise>;

}  // namespace gable::cuda
