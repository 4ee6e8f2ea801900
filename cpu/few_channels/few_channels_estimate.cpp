// The time of FewChannelsPlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/few_channels/few_channels.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
// Of a tile and of a vector that it stores. Tiles that share taps wait for loads, which hides both.
constexpr double kTile = 50;
constexpr double kStoredVector = 1;
constexpr double kInterleaved = 1.4;  // a vector of outputs of pixel lanes, for each channel that it mixes
constexpr double kPixelsProduct = 1.15;
constexpr double kCopiedRow = 90;
constexpr double kSplitFloat = 0.85;
constexpr ConversionCost kStored{0, 1};
// Of pixel lanes in NCHW: a copied row of a channel, each of its pixels if columns have a stride, a product's share of
// fma_cycles(), a stored vector and a row of it. Fitted on Zen 5.
constexpr double kPlaneRow = 44, kStridedPixel = 0.7, kPlaneProduct = 0.9, kPlaneVector = 3.6, kPlaneStoredRow = 7;

double planes_cycles(const Conv2dProblem& p, const Target& target, std::int64_t lanes) {
  const auto out_rows = static_cast<double>(p.n * p.k * p.ho);
  const auto vectors = out_rows * static_cast<double>(ceil_div(p.wo, lanes));
  const auto steps = static_cast<double>(few_channels_steps(p));
  return static_cast<double>(p.n * p.h * p.c) * kPlaneRow +
         (p.stride_w > 1 ? static_cast<double>(p.x_elements()) * kStridedPixel : 0) +
         vectors * (steps * fma_cycles(target, lanes) * kPlaneProduct + kPlaneVector) + out_rows * kPlaneStoredRow;
}

}  // namespace

double few_channels_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!p.pool.none()) return kNoEstimate;
  const FewChannelsKernels& kernels = few_channels_kernels(target);
  const FewChannelsBlocking b = few_channels_blocking(p, kernels, threads);
  if (!p.nhwc) {
    const bool fitted = b.tile.pixel_lanes && core_kind(kernels.lanes) == CoreKind::whole_512;
    return !fitted ? kNoEstimate
                   : estimated_seconds(p, planes_cycles(p, target, kernels.lanes), p.n * b.units.row_blocks, threads);
  }
  const double fma = fma_cycles(target, kernels.lanes);
  const auto rows = static_cast<double>(p.n * p.ho);
  double cycles = static_cast<double>(p.n * p.h) * kCopiedRow +
                  (b.strip.planes ? static_cast<double>(p.x_elements()) * kSplitFloat : 0);
  if (b.tile.pixel_lanes) {
    const auto vectors = static_cast<double>(ceil_div(p.wo, kernels.lanes));
    const auto channels = static_cast<double>(p.k), steps = static_cast<double>(few_channels_steps(p));
    cycles += rows * vectors * channels * (steps * fma * kPixelsProduct + channels * kInterleaved);
  } else {
    const auto vectors = static_cast<double>(ceil_div(p.k, kernels.lanes));
    const double panels = vectors / static_cast<double>(b.tile.vectors);
    const auto tiles = static_cast<double>(ceil_div(p.wo, widest_tile(kernels, b.tile)));
    const auto pixels = static_cast<double>(p.wo);
    const bool shares_taps = b.strip.planes && kernels.shares_taps;
    const double inside = static_cast<double>(p.n) * kernel_rows_inside(p);  // rows of padding are skipped
    cycles += inside * pixels * vectors * static_cast<double>(p.s * p.c) * fma +
              (shares_taps ? 0 : rows * (pixels * vectors * kStoredVector + tiles * panels * kTile)) +
              conversion_cycles(p, p.n * p.ho * p.wo, p.k, kStored);
  }
  return estimated_seconds(p, cycles, p.n * b.units.row_blocks, threads);
}

}  // namespace gable::cpu
