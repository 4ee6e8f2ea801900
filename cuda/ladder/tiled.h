// The third and fourth steps of the ladder. A block computes 16×16 pixels of eight output channels: a block of input
// channels, with the halo that the taps need, and its weights are loaded into shared memory once for all 256 threads.
//
//   shared         one buffer: load, wait, compute, wait. Loads and arithmetic of a block never overlap.
//   double_buffer  two buffers: the next block of channels is prefetched (cp.async) while this one is computed.
//
// A thread holds one pixel's eight sums: for each tap and channel it reads one input and eight weights from shared
// memory for 16 FLOP. Pools of up to 16×16 happen in the block, through shared memory.
#pragma once

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

struct Shared {
  static constexpr std::size_t kAlignment = 1;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using SharedConv2d = Conv2dKernel<Shared>;

struct DoubleBuffer {
  static constexpr std::size_t kAlignment = 1;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using DoubleBufferConv2d = Conv2dKernel<DoubleBuffer>;

}  // namespace gable::cuda
