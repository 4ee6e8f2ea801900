// The third and fourth steps of the ladder. A block computes 16×16 pixels of eight output channels: a block of input
// channels, with the halo that the taps need, and its weights come to shared memory once and serve all 256 threads.
//
//   shared         one buffer: load, wait, compute, wait. Loads and arithmetic of a block never overlap.
//   double_buffer  two buffers: the next block of channels is on its way (cp.async) while this one is computed.
//
// A thread holds one pixel's eight sums: for each tap and channel it reads one input and eight weights from shared
// memory for 16 FLOP. Pools of up to 16×16 happen in the block, through shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"
#include "cuda/gemm/packed_weights.h"

namespace gable::cuda {

/// Sizes of a block's work, of shared memory in elements of f32.
struct Tiling {
  int pooled_h = 1, pooled_w = 1;  // outputs of a block after the pool
  int halo_h = 1, halo_w = 1;      // inputs of a block, pixels
  int channels = 1;                // input channels of a stage
  int stage = 1;                   // input tile and weights of a stage
  int stages = 1;

  std::size_t bytes() const;
};

class TiledConv2d {
 public:
  static constexpr std::size_t kAlignment = 1;  // of tensors' addresses, beyond that of an element

  TiledConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device, int stages);

  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device, int stages);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return 0; }
  /// Device pointers; both are asynchronous on `stream` and allocate nothing.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  Conv2dProblem problem_;
  PackedOrder order_;
  Tiling tiling_;
};

class SharedConv2d : public TiledConv2d {
 public:
  SharedConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device) : TiledConv2d(problem, device, 1) {}
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return TiledConv2d::refusal(problem, device, 1);
  }
};

class DoubleBufferConv2d : public TiledConv2d {
 public:
  DoubleBufferConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device) : TiledConv2d(problem, device, 2) {}
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return TiledConv2d::refusal(problem, device, 2);
  }
};

}  // namespace gable::cuda
