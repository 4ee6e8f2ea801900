// Depthwise convolution: one input channel a group, any window, stride, dilation and channel multiplier, in both
// layouts. Windows of 3x3, 5x5 and 7x7 in nhwc go down strips of the image (strips.h), the rest is depthwise_any
// (any.h).
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

/// How depthwise_any deals outputs to threads.
struct DepthwiseOverrides {
  int lanes = 1;        ///< channels of a thread: 1, or in nhwc without a multiplier 2 or 4 if they divide the channels
  bool turned = false;  ///< a thread's outputs lie below each other
  bool half = false;    ///< a thread has half as many outputs
};

struct Depthwise {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// Estimated, inside a CUDA graph, of a problem that it doesn't refuse.
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// depthwise_any, whatever the window.
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                          const DepthwiseOverrides& overrides);
};
using DepthwiseConv2d = Conv2dKernel<Depthwise>;

}  // namespace gable::cuda
