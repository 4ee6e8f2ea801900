// Convolution of 2 to 8 input channels a group, and in NHWC of 9 to 32 in one group, on the tensor cores, each tensor
// touched once: implicit GEMM on an input tile in shared memory, so that a filter tap costs an address, not a copy. Any
// kernel size, stride and dilation; f16, bf16, and f32 as tf32. The 2x2 maximum, bias and activation happen in
// registers.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct FewChannelsMmaKernel {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using FewChannelsMma = Conv2dKernel<FewChannelsMmaKernel>;

}  // namespace gable::cuda
