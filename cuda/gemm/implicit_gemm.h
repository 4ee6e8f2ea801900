// The sixth step of the ladder: the implicit matrix product on the tensor cores of sm_80 and later (mma.sync), for f16,
// bf16 and f32 as tf32.
//
// A warp computes 64 rows × 32 columns from fragments that ldmatrix reads out of shared memory: for 32 bytes of depth,
// 4 + 2 loads of 512 bytes feed 16 products of 16×8×16 (f16) or 16×8×8 (tf32). A block of up to 8 warps loads 64 bytes
// of depth of its rows and columns in a ring of three buffers, filled by cp.async two steps ahead; 80 bytes from row to
// row keep ldmatrix free of bank conflicts. Rows and columns are dealt to slots so that a thread ends with eight
// neighbouring rows, two windows of the pool, and eight neighbouring columns, one store of 16 bytes of f16.
#pragma once

#include "cuda/ops/with_reorders.h"

namespace gable::cuda {

/// NHWC, without a pool or with one of 2×2.
struct ImplicitGemmMma {
  static constexpr std::size_t kAlignment = 16;

  static std::string missing(const cudaDeviceProp& device);
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using ImplicitGemmConv2d = Conv2dKernel<WithReorders<ImplicitGemmMma>>;

}  // namespace gable::cuda
