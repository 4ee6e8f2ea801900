// The sixth step of the ladder: the implicit matrix product on the tensor cores of sm_80 and later (mma.sync), for f16,
// bf16 and f32 as tf32. Any number of channels, groups, any filter. Made for what wgmma's larger tiles and longer
// prologue do not suit: few channels, odd channels, few pixels, deep sums of few outputs.
//
//   mma_tile.cuh      a ring of stages in shared memory that cp.async fills, and a warp's products
//   mma_epilogue.cuh  bias, activation, pool and stores; sums of the blocks of a cluster
//   mma_choice.h      the tile, by a model of its time
//
// Blocks are short: no tensor maps, no barriers in memory, a prologue of a few hundred cycles that overlaps with the
// kernel before (programmatic launch). Where tiles are few, a cluster of 2 to 8 blocks shares a tile's depth and adds
// up the sums through its shared memory, without a workspace and a second kernel.
#pragma once

#include "cuda/gemm/mma_choice.h"
#include "cuda/ops/with_reorders.h"

namespace gable::cuda {

/// NHWC, without a pool or with one of 2x2.
struct ImplicitGemmMma {
  static constexpr std::size_t kAlignment = 16;

  static std::string missing(const cudaDeviceProp& device);
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// With a tile and splits of the caller's choice, for tests.
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                          const MmaChoice& forced);
};
using ImplicitGemmConv2d = Conv2dKernel<WithReorders<ImplicitGemmMma>>;

}  // namespace gable::cuda
