// The fifth step of the ladder, and the fast path of strict f32: an implicit matrix product whose sums stay in
// registers.
//
// A thread computes 8x8 sums, or 8x16: for each place of the depth it reads 8 + 8 values from shared memory (loads that
// a warp's threads share) for 64 multiply-adds, a place ahead. Three or four buffers each hold 8, 16 or 32 places of
// the depth; one is computed on while the others fill: 64 rows × 128 columns read 12 KiB for 262,144 FLOP. Its barrier,
// and the copies into the buffer that becomes free, lie before the last place's products. Rows gather their pixels
// through the taps, so the input is neither copied nor unfolded; the pool is a maximum of four sums of one thread.
// Products with few tiles cut the depth in parts, whose sums a second kernel adds up, and give warps of a block their
// slices of each stage.
#pragma once

#include <span>

#include "cuda/gemm/implicit.h"
#include "cuda/ops/with_reorders.h"

namespace gable::cuda {

/// NHWC, without a pool or with one of 2×2.
struct RegisterTile {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
  /// With a tile of the caller's choice, for tests.
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                          const GemmTileOverrides& overrides);
  static std::span<const GemmCandidate> tiles();
};
using RegisterTileConv2d = Conv2dKernel<WithReorders<RegisterTile>>;

}  // namespace gable::cuda
