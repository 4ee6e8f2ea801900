// Convolution of one input channel on the f32 units with the weights in registers: the first layer on grey images.
//
// A thread computes two output rows by two columns (a window of the 2x2 pool) of half the output channels: for 5x5 and
// 6 channels 300 FMA on 36 inputs from shared memory and 75 weights, which stay in registers for all images. That reads
// 0.12 words of shared memory an FMA, half of its bandwidth; weights in shared memory would exceed it. A block works on
// whole images: it prefetches the next one while it computes this one, and stores results through shared memory in
// whole vectors.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct OneChannel {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using OneChannelConv2d = Conv2dKernel<OneChannel>;

}  // namespace gable::cuda
