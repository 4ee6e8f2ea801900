// Convolution of at most 8 input channels a group on the f32 units, each tensor touched once: a block loads the input
// tile with its halo as f32 planes into shared memory, a thread computes 2 rows x 4 or 6 columns x 6 or 8 channels in
// registers (weights are read as broadcasts), takes the 2x2 maximum, bias and activation there, and stores.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct FewChannels {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using FewChannelsConv2d = Conv2dKernel<FewChannels>;

}  // namespace gable::cuda
