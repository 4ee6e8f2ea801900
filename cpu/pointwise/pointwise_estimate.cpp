// The time of PointwisePlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/pointwise/pointwise.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kTile = 50;
constexpr double kRun = 4.3;
constexpr double kStoredVector = 1;
constexpr double kRow = 56;  // that is no run of pixels with the row before
// A vector of pixels that are read for a single panel, on Xeons with AMX.
constexpr double kReadOnce = 1.2;
// Of a panel whose tiles follow one another without prefetches: a tile, a vector of pixels that
// are read (on Xeons with AMX), and beside them products with held weights.
constexpr double kTileOfRun = 15, kReadOnceOfRun = 0.4, kHeldProducts = 0.85;
constexpr double kCopiedPixel = 17;
constexpr double kCopiedVector = 3.5;
constexpr double kWidenedRun = 12;  // of pixels that lie together
constexpr double kWidenedVector = 1.5, kNarrowedVector = 0.8;
constexpr double kHalfVectorProduct = 1.25;  // times the products of a whole vector of as many lanes

constexpr double kNearWeights = 1;    // cycles of a vector of weights, at most, that come from L1
constexpr double kNarrowPanel = 1.5;  // times the cycles of weights of the widest panel

}  // namespace

double pointwise_seconds(const Conv2dProblem& all, const Target& target, int threads) {
  if (!has_estimate(all)) return kNoEstimate;
  const PointwiseKernels& kernels = pointwise_kernels(target);
  const PointwiseBlocking b = pointwise_blocking(all, kernels, threads);
  const Conv2dProblem p = problem_of_group(all);
  const auto pixels = static_cast<double>(b.pixels);
  const auto channels = static_cast<double>(p.c);
  const auto runs = static_cast<double>(ceil_div(p.c, kPointwiseRun));
  const double rows = pixels / static_cast<double>(b.row_pixels);
  const double tiles = b.copies_input ? static_cast<double>(ceil_div(b.pixels, b.tile.pixels))
                                      : rows * static_cast<double>(ceil_div(b.row_pixels, b.tile.pixels));
  const bool one_panel = p.k <= 2 * kernels.lanes && core_kind(kernels.lanes) == CoreKind::amx;
  const double read_line = b.runs_of_tiles ? kReadOnceOfRun : kReadOnce;
  const double read_once = one_panel ? static_cast<double>(ceil_div(p.c, std::int64_t{kernels.lanes})) * read_line : 0;
  const double of_tile = b.runs_of_tiles || b.run_pixels > 0 ? kTileOfRun : kTile + runs * kRun;
  const double held = b.holds_weights && core_kind(kernels.lanes) == CoreKind::amx ? kHeldProducts : 1;
  const double input = b.widens_tiles
                           ? (b.strip_pixel == p.c ? tiles : pixels) * kWidenedRun + pixels * runs * kWidenedVector
                       : b.copies_input ? pixels * (kCopiedPixel + runs * kCopiedVector)
                                        : rows * kRow + pixels * read_once;
  const double stored = kStoredVector + (p.dtype == DType::f32 ? 0 : kNarrowedVector);
  double cycles = input * static_cast<double>(b.units.lane_blocks);
  const double weights = weights_cycles(p);
  const bool vector = is_matrix_by_vector(p, kernels) && p.k > kernels.lanes;
  const std::int64_t widest = b.tile.vectors * kernels.lanes;
  std::int64_t lanes = 0, panels = 0;
  for (std::int64_t lane = 0; lane < p.k; lane += panels * lanes) {
    const bool whole = p.k - lane >= widest || b.tile.vectors == kThreeVectors;
    lanes = whole ? widest : packed_panel_lanes(kernels, p.k - lane);
    panels = std::max<std::int64_t>(1, (p.k - lane) / lanes);  // alike
    const auto vectors = static_cast<double>(std::max<std::int64_t>(1, lanes / kernels.lanes));
    const double product = fma_cycles(target, std::min<std::int64_t>(lanes, kernels.lanes)) *
                           (lanes < kernels.lanes ? kHalfVectorProduct : held);
    // A tile of one pixel waits for weights, of narrow panels longer if they come from L2.
    const double waits = vector && lanes < widest && weights > kNearWeights ? kNarrowPanel : 1;
    const double step = std::max(pixels * product, tiles * weights * waits);
    cycles += static_cast<double>(panels) * (vectors * (channels * step + pixels * stored) + tiles * of_tile);
  }
  const std::int64_t units = all.groups * b.units.pixel_blocks * b.units.lane_blocks;
  return estimated_seconds(all, cycles * static_cast<double>(all.groups), units, threads);
}

}  // namespace gable::cpu
