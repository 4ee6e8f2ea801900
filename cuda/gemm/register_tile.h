// The fifth step of the ladder, and the fast path of strict f32: an implicit matrix product whose sums stay in
// registers.
//
// A warp computes 32 rows × 64 columns, a thread 8×8 of them: for each place of the depth it reads 8 + 8 values from
// shared memory (loads that a warp's threads share) for 64 multiply-adds. A block of 2 or 4 warps prefetches 32 places
// of the depth into one of two buffers while it computes on the other: 128 rows × 64 columns read 24 KiB for 524,288
// FLOP. Rows gather their pixels through the taps, so the input is neither copied nor unfolded; the pool is a maximum
// of four sums of one thread. Products with few tiles cut the depth in parts, whose sums a second kernel adds up.
#pragma once

#include "cuda/ops/with_reorders.h"

namespace gable::cuda {

/// NHWC, without a pool or with one of 2×2.
struct RegisterTile {
  static constexpr std::size_t kAlignment = 16;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device);
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device);
};
using RegisterTileConv2d = Conv2dKernel<WithReorders<RegisterTile>>;

}  // namespace gable::cuda
