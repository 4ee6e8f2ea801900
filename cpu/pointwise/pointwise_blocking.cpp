// See pointwise_blocking.h.
#include "cpu/pointwise/pointwise_blocking.h"

#include <algorithm>
#include <limits>

#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/common/grid_time.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kTilesPerBand = 16;
constexpr std::int64_t kWideVectors = 4;
constexpr std::int64_t kFewPanels = 2;  // of four vectors

/// Vectors of a tile: eight if all pixels fit one such tile; four if there are one or two panels of four and a panel's
/// weights nearly fit L1; three if they hold all outputs and two do not; else two.
std::int64_t choose_vectors(const Conv2dProblem& p, const PointwiseKernels& kernels, bool copies_input) {
  if (is_matrix_by_vector(p, kernels)) return kMaxPointwiseVectors;
  const bool three = p.k > kPanelVectors * kernels.lanes && p.k <= kThreeVectors * kernels.lanes;
  if (three && !copies_input && kernels.most_pixels[kThreeVectors] > 0) return kThreeVectors;
  const std::int64_t lanes = kWideVectors * kernels.lanes;
  const bool exists = kernels.most_pixels[kWideVectors] > 0;
  const bool few = p.k >= lanes && p.k <= kFewPanels * lanes;
  return exists && !copies_input && few && p.c * lanes * kFloat <= l1_bytes() * 3 / 2 ? kWideVectors : kPanelVectors;
}

/// Costs besides the products: of a tile, of reading a pixel in a unit's first panel, and of a copied pixel, in pixels
/// of a panel; then of a tile and of a pixel, in cycles.
constexpr double kTilePixels = 1, kReadPixel = 0.4, kCopyPixel = 0.7;
constexpr double kTileCycles = 50, kPixelCycles = 15;
/// The fixed cost of a unit, in tiles of a panel.
constexpr double kUnitTiles = 0.5;

/// Whether much of the input comes from memory. Hardware prefetchers fetch it in time from nearer caches, although a
/// tile that widens its pixels at once and then multiplies reads it in bursts.
bool lies_in_memory(const Conv2dProblem& p) {
  return p.x_elements() * static_cast<std::int64_t>(size_of(p.dtype)) > last_level_bytes() / 3;
}

/// Pixels of which a panel computes all tiles before the next panel does: L2 keeps their channels, and L1 the panel's
/// weights. The call of a tile of few registers and its prefetches take a tenth of the time of 64 channels. Not for
/// short rows, each of which takes calls of its own; 0 then.
std::int64_t run_pixels(const Conv2dProblem& p, const PointwiseKernels& kernels, const PointwiseBlocking& b) {
  constexpr std::int64_t kFewestTilesOfRow = 4;
  const bool runs = b.tile.vectors <= kernels.most_run_vectors && !b.runs_of_tiles && !b.copies_input;
  const bool rows = b.row_pixels < b.pixels;
  if (!runs || (rows && b.row_pixels < kFewestTilesOfRow * b.tile.pixels)) return 0;
  const std::int64_t fitting = l2_bytes() / 8 / (p.c * kFloat);
  const std::int64_t step = rows ? b.row_pixels : b.tile.pixels;
  return std::max<std::int64_t>(1, fitting / step) * step;
}

/// Channels up to which tiles that keep weights in registers are faster. More channels take several passes over a
/// tile's sums. They pay beside AMX, where an input at base + index takes up to 1.5 times as long as one at a constant
/// distance while the core is in its slow state.
std::int64_t most_held_channels(std::int64_t lanes) {
  return core_kind(lanes) == CoreKind::amx ? 192 : kMostHeldWeights;
}

/// The units, given the pixels and lanes of each.
PointwiseUnits units_of(const Conv2dProblem& p, const PointwiseBlocking& b, std::int64_t pixels, std::int64_t lanes) {
  return {pixels, lanes, ceil_div(b.pixels, pixels), ceil_div(p.k, lanes)};
}

/// The time of the busiest thread, in pixels of a panel; infinite if it is not below `enough`.
double cost(const Conv2dProblem& p, const PointwiseBlocking& b, const PointwiseUnits& units, std::int64_t vector,
            int threads, double enough) {
  const std::int64_t panel = b.tile.vectors * vector;
  const double start = kUnitTiles * static_cast<double>(b.tile.pixels);
  const double pixel_cycles = static_cast<double>(p.c);  // of a panel
  const double read = (b.copies_input ? kCopyPixel : kReadPixel) + kPixelCycles / pixel_cycles;
  const double of_tile = kTilePixels + kTileCycles / pixel_cycles;
  const double region = units.pixel_blocks * units.lane_blocks > 1 ? region_cycles(threads) / pixel_cycles : 0;
  const auto work = [&](std::int64_t unit) {
    const std::int64_t pixels = std::min(units.pixels, b.pixels - unit / units.lane_blocks * units.pixels);
    const std::int64_t lanes = std::min(units.lanes, p.k - unit % units.lane_blocks * units.lanes);
    const auto tiles = static_cast<double>(ceil_div(pixels, b.tile.pixels));
    const double panels = static_cast<double>(round_up(lanes, vector)) / static_cast<double>(panel);
    return (static_cast<double>(pixels) + tiles * of_tile) * panels + static_cast<double>(pixels) * read + start;
  };
  const UnitAxes<2> axes{units.pixel_blocks, units.lane_blocks};
  return region + grid_time(threads, axes, work, enough - region);
}

/// Whether a matrix-vector product takes less time than starting threads.
bool is_short(const Conv2dProblem& p, const PointwiseKernels& kernels, int threads) {
  return static_cast<double>(p.c * ceil_div(p.k, std::int64_t{kernels.lanes})) * weights_cycles(p) <
         break_even_cycles(threads);
}

/// In a matrix-vector product only lanes can be divided among threads: panels narrower than the tile's feed more
/// threads.
PointwiseUnits units_of_vector(const Conv2dProblem& p, const PointwiseKernels& kernels, int threads,
                               const PointwiseBlocking& b) {
  if (is_short(p, kernels, threads)) return units_of(p, b, b.pixels, p.k);
  std::int64_t panel = b.tile.vectors * kernels.lanes;
  while (panel > kPanelVectors * kernels.lanes && ceil_div(p.k, panel) < threads) panel /= 2;
  return units_of(p, b, b.pixels, std::min(p.k, round_up(ceil_div(p.k, units_wanted(threads)), panel)));
}

/// The cut into blocks of pixels and lanes, with up to kUnitsPerThread units a thread, that gives the busiest thread
/// the least work. If rows are read one by one, blocks of pixels are whole rows. If panels are the outer loop, blocks
/// of pixels are at most a band and at least kMinTilesPerBand tiles.
PointwiseUnits feed_threads(const Conv2dProblem& p, const PointwiseKernels& kernels, int threads,
                            const PointwiseBlocking& b) {
  if (is_matrix_by_vector(p, kernels)) return units_of_vector(p, kernels, threads, b);
  const std::int64_t panel = b.tile.vectors * kernels.lanes, wanted = units_wanted(threads);
  const std::int64_t step = b.copies_input || is_pointwise(p) ? 1 : b.row_pixels;
  const std::int64_t least = b.panels_outside ? kMinTilesPerBand * b.tile.pixels : step;
  const std::int64_t fewest = b.panels_outside ? ceil_div(b.pixels, b.band_pixels) : 1;
  PointwiseUnits best = units_of(p, b, ceil_div(b.pixels, fewest), p.k);
  if (fewest >= wanted) return best;
  double least_cost = cost(p, b, best, kernels.lanes, threads, std::numeric_limits<double>::infinity());
  for (std::int64_t blocks = fewest; blocks <= wanted; ++blocks) {
    const std::int64_t pixels = std::min(b.pixels, round_up(ceil_div(b.pixels, blocks), step));
    if (blocks > fewest && pixels < least) break;
    for (std::int64_t lane_blocks = 1; blocks * lane_blocks <= wanted; ++lane_blocks) {
      const PointwiseUnits units = units_of(p, b, pixels, std::min(p.k, round_up(ceil_div(p.k, lane_blocks), panel)));
      if (units.lane_blocks < lane_blocks) continue;  // tried already
      const double found = cost(p, b, units, kernels.lanes, threads, least_cost);
      if (found >= least_cost) continue;
      best = units;
      least_cost = found;
    }
  }
  return best;
}

/// Groups of channels lie in the same cache lines of a pixel, which L2 keeps for the next group.
PointwiseUnits units_of_groups(const Conv2dProblem& all, const Conv2dProblem& p, int threads,
                               const PointwiseBlocking& b) {
  const std::int64_t kept = l2_bytes() / 2 / ((all.c + all.k) * kFloat);
  const std::int64_t blocks = ceil_div(units_wanted(threads), all.groups);
  const std::int64_t pixels = std::min(std::max<std::int64_t>(kept, b.tile.pixels), ceil_div(b.pixels, blocks));
  const std::int64_t step = b.copies_input || is_pointwise(p) ? b.tile.pixels : b.row_pixels;
  return units_of(p, b, std::min(b.pixels, round_up(even_part(b.pixels, pixels), step)), p.k);
}

}  // namespace

Conv2dProblem problem_of_group(const Conv2dProblem& problem) {
  Conv2dProblem group = problem;
  group.c = problem.group_c();
  group.k = problem.group_k();
  group.groups = 1;
  return group;
}

bool is_matrix_by_vector(const Conv2dProblem& p, const PointwiseKernels& kernels) {
  return p.n * p.ho * p.wo <= kernels.most_pixels[kMaxPointwiseVectors];
}

bool l2_keeps_weights(const Conv2dProblem& p) { return p.c * p.k * kFloat <= l2_bytes() / 2; }

std::int64_t cached_pixels(const Conv2dProblem& p) { return l2_bytes() / 2 / (p.c * kFloat); }

PointwiseBlocking pointwise_blocking(const Conv2dProblem& all, const PointwiseKernels& kernels, int threads) {
  const Conv2dProblem p = problem_of_group(all);
  PointwiseBlocking b{};
  b.pixels = p.n * p.ho * p.wo;
  b.row_pixels = is_pointwise(p) ? b.pixels : p.wo;
  b.panels_outside = !l2_keeps_weights(p) && !is_matrix_by_vector(p, kernels);
  const int most_pixels = kernels.most_pixels[kPanelVectors];
  const bool aliased = shares_a_set(p.stride_w, all.c, kFloat) && most_pixels > l1_bytes() / kL1WayBytes;
  const bool short_rows = b.row_pixels < std::min<std::int64_t>(b.pixels, most_pixels);
  const bool copies = !is_matrix_by_vector(p, kernels) && (b.panels_outside || aliased || short_rows);
  b.copies_input = p.dtype != DType::f32 || copies;
  b.widens_tiles = p.dtype != DType::f32 && !b.panels_outside;
  b.prefetches_widened = b.widens_tiles && lies_in_memory(p);
  b.non_temporal = p.dtype == DType::f32 && all.groups == 1 && p.k % kernels.lanes == 0 &&
                   beyond_last_level(b.pixels * p.k * kFloat);
  b.tile.vectors = choose_vectors(p, kernels, b.copies_input && !b.widens_tiles);
  b.tile.pixels = kernels.most_pixels[static_cast<std::size_t>(b.tile.vectors)];
  // Neighbouring pixels are widened as one run.
  const bool together = b.widens_tiles && p.stride_w == 1 && !aliased;
  b.strip_pixel = together ? p.c : round_up(p.c, kPointwiseRun) + kPointwiseRun;
  const std::int64_t tiles = std::min(cached_pixels(p) / b.tile.pixels, kTilesPerBand);
  b.band_pixels = (b.panels_outside ? tiles : 1) * b.tile.pixels;
  b.runs_of_tiles =
      !b.copies_input && p.k <= kernels.most_run_vectors * kernels.lanes && !is_matrix_by_vector(p, kernels);
  b.run_pixels = run_pixels(p, kernels, b);
  b.holds_weights = b.runs_of_tiles && kernels.held_weights != nullptr &&
                    packed_panel_lanes(kernels, p.k) == kernels.lanes && p.c <= most_held_channels(kernels.lanes);
  b.units = all.groups == 1 ? feed_threads(p, kernels, threads, b) : units_of_groups(all, p, threads, b);
  return b;
}

}  // namespace gable::cpu
