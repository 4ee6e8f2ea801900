// Host side of the wgmma kernel (see wgmma_kernel.cuh): what it takes, its packed weights, its launches.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"
#include "cuda/wgmma/geometry.h"

namespace gable::cuda {

/// Convolution + bias + activation + max-pool 2x2 in one kernel on tensor cores of compute capability 9.0. f16, bf16,
/// and f32 in tf32 arithmetic or in products of bf16 parts, into which a pass before cuts x. NHWC; where channels are
/// no whole vectors of 16 bytes, tensors pass through padded copies. run() is safe from several threads.
class WgmmaConv2d {
 public:
  static constexpr std::size_t kAlignment = 16;  // of tensors' addresses, for tensor copies

  /// Empty, or why a GPU has not the instructions.
  static std::string missing(const cudaDeviceProp& device);
  /// Empty, or why the kernel can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Chooses the tile. Throws CallFailed, or std::invalid_argument where refusal() is not empty.
  WgmmaConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device, const WgmmaWishes& wishes = {});
  ~WgmmaConv2d();
  WgmmaConv2d(WgmmaConv2d&&) noexcept;
  WgmmaConv2d& operator=(WgmmaConv2d&&) noexcept;

  const WgmmaGeometry& geometry() const;
  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const;

  /// Device pointers; asynchronous on the stream. `packed` is aligned to 128 bytes, `workspace` to 16.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gable::cuda
