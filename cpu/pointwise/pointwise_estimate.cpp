// The time of PointwisePlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/common/estimate.h"
#include "cpu/pointwise/pointwise.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kTile = 60;
constexpr double kRun = 7.5;
constexpr double kCopiedVector = 5.5;

}  // namespace

double pointwise_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p)) return kNoEstimate;
  const PointwiseKernels& kernels = pointwise_kernels(target);
  const PointwiseBlocking b = pointwise_blocking(p, kernels, threads);
  const auto pixels = static_cast<double>(b.pixels);
  const auto channels = static_cast<double>(p.c);
  const auto runs = static_cast<double>(ceil_div(p.c, kPointwiseRun));
  const double rows = pixels / static_cast<double>(b.row_pixels);
  const double tiles = b.copies_input ? static_cast<double>(ceil_div(b.pixels, b.tile.pixels))
                                      : rows * static_cast<double>(ceil_div(b.row_pixels, b.tile.pixels));
  double cycles = b.copies_input ? pixels * runs * kCopiedVector * static_cast<double>(b.units.lane_blocks) : 0;
  std::int64_t lanes = 0;
  for (std::int64_t lane = 0; lane < p.k; lane += lanes) {
    const std::int64_t widest = b.tile.vectors * kernels.lanes;
    lanes = p.k - lane >= widest ? widest : packed_panel_lanes(kernels, p.k - lane);
    const auto vectors = static_cast<double>(std::max<std::int64_t>(1, lanes / kernels.lanes));
    const double products =
        pixels * channels * vectors * fma_cycles(target, std::min<std::int64_t>(lanes, kernels.lanes));
    cycles += products + tiles * (kTile + runs * kRun);
  }
  return estimated_seconds(p, cycles, b.units.pixel_blocks * b.units.lane_blocks, threads);
}

}  // namespace gable::cpu
