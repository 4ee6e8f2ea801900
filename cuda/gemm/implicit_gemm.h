// The sixth step of the ladder: the implicit matrix product on the tensor cores of sm_80 and later (mma.sync), for f16,
// bf16 and f32 as tf32.
//
// A warp computes 64 rows × 32 columns from fragments that ldmatrix reads out of shared memory: for 32 bytes of depth,
// 4
// + 2 loads of 512 bytes feed 16 products of 16×8×16 (f16) or 16×8×8 (tf32). A block of up to 8 warps stages 64 bytes
// of depth of its rows and columns in a ring of three buffers, filled by cp.async two steps ahead; 80 bytes from row to
// row keep ldmatrix free of bank conflicts. Rows and columns are dealt to slots so that a thread ends with eight
// neighbouring rows, two windows of the pool, and eight neighbouring columns, one store of 16 bytes of f16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include <gable/problem.h>
#include "cuda/common/description.h"
#include "cuda/gemm/implicit.h"
#include "cuda/gemm/packed_weights.h"

namespace gable::cuda {

class ImplicitGemmConv2d {
 public:
  static constexpr std::size_t kAlignment = 16;  // of tensors' addresses

  /// NHWC, without a pool or with one of 2×2: Staged makes it so.
  ImplicitGemmConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device);

  /// Empty, or why the GPU has no such kernel.
  static std::string missing(const cudaDeviceProp& device);
  /// Empty, or why it can't run the problem.
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const;
  std::size_t packed_bytes() const;
  std::size_t workspace_bytes() const { return parts_bytes(gemm_, tile_.splits); }
  /// Device pointers; both are asynchronous on `stream` and allocate nothing.
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const;

 private:
  PackedOrder order() const;

  Conv2dProblem problem_;
  ImplicitGemm gemm_;
  GemmTile tile_;
};

}  // namespace gable::cuda
