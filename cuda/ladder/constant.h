// The second step of the ladder: weights come from constant memory, whose cache gives one word to all threads of a warp
// in one access. Threads of a warp are pixels, so they want the same weight at the same time; a thread computes four
// output channels of one pixel, so that each input it loads serves four multiply-adds.
//
// The 64 KiB of constant memory are one bank a device: each run copies its weights in first, and runs on different
// streams wait for one another (on the device). Inside CUDA graphs that order is the application's to keep.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"
#include "cuda/gemm/packed_weights.h"

namespace gable::cuda {

class ConstantConv2d {
 public:
  static constexpr std::size_t kAlignment = 1;  // of tensors' addresses, beyond that of an element

  ConstantConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return 0; }
  /// Device pointers; both are asynchronous on `stream` and allocate nothing.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  Conv2dProblem problem_;
  PackedOrder order_;
};

}  // namespace gable::cuda
