// The first step of the ladder: one thread computes one element of the (pooled) output, straight from global memory.
// It runs every problem, so it is also what is left when every other kernel refuses.
//
// Each multiply-add reads both its operands: 8 bytes of f32 for 2 FLOP, from whatever cache holds them. Overlapping
// pooling windows compute their shared elements again.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"

namespace gable::cuda {

class NaiveConv2d {
 public:
  static constexpr std::size_t kAlignment = 1;  // of tensors' addresses, beyond that of an element

  NaiveConv2d(const Conv2dProblem& problem, const cudaDeviceProp&) : problem_(problem) {}

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
};

}  // namespace gable::cuda
