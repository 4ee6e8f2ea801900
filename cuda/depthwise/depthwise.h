// Depthwise convolution: one input channel a group, any window, stride, dilation and channel multiplier, in both
// layouts. Windows of 3x3, 5x5 and 7x7 in nhwc go down strips of the image (strips.h), the rest is depthwise_any
// (any.h).
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct Depthwise {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// Estimated, inside a CUDA graph, of a problem that it doesn't refuse.
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using DepthwiseConv2d = Conv2dKernel<Depthwise>;

}  // namespace gable::cuda
