// The fifth step of the ladder, and the fast path of strict f32: an implicit matrix product whose sums stay in
// registers.
//
// A warp computes 32 rows × 64 columns, a thread 8×8 of them: for each place of the depth it reads 8 + 8 values from
// shared memory (loads that a warp's threads share) for 64 multiply-adds. A block of 2 or 4 warps stages 32 places of
// the depth in one of two buffers while it computes on the other: 128 rows × 64 columns read 24 KiB for 524,288 FLOP.
// Rows gather their pixels through the taps, so the input is neither copied nor unfolded; the pool is a maximum of four
// sums of one thread. Products with few tiles cut the depth in parts, whose sums a second kernel adds up.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"
#include "cuda/gemm/implicit.h"
#include "cuda/gemm/packed_weights.h"

namespace gable::cuda {

class RegisterTileConv2d {
 public:
  static constexpr std::size_t kAlignment = 16;  // of tensors' addresses

  /// NHWC, without a pool or with one of 2×2: Staged makes it so.
  RegisterTileConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const;
  /// Device pointers; both are asynchronous on `stream` and allocate nothing.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  Conv2dProblem problem_;
  ImplicitGemm gemm_;
  GemmTile tile_;
};

}  // namespace gable::cuda
