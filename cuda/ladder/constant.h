// The second step of the ladder: weights come from constant memory, whose cache gives one word to all threads of a warp
// in one access. Threads of a warp are pixels, so they want the same weight at the same time; a thread computes four
// output channels of one pixel, so that each input it loads serves four multiply-adds.
//
// The 64 KiB of constant memory are one bank a device: each run copies its weights in first, and runs on different
// streams wait for one another (on the device). Inside CUDA graphs that order is the application's to keep.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct Constant {
  static constexpr std::size_t kAlignment = 1;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using ConstantConv2d = Conv2dKernel<Constant>;

}  // namespace gable::cuda
