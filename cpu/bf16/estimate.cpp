// The estimated time of the units on a layer, precise enough to choose between the units of one machine. AMX multiplies
// fastest, but it takes whole tiles of 32 positions and has a higher fixed cost.
#include <algorithm>

#include "cpu/bf16/blocking.h"
#include "cpu/bf16/in_rows.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr double kHertz = 3e9;
// Cycles of a unit that loads full halves.
constexpr double kStage = 5;        // to stage a block of 32 channels of a position
constexpr double kGatheredRow = 2;  // to gather a kernel row of a position's window
constexpr double kStore = 3.7;      // to store 16 lanes of a position
// The same unit with f16 or f32 that is split into parts. Fitted to f16 beside the kernels of f32 arithmetic.
constexpr double kSplitPixel = 10, kSplitBlock = 12;  // to stage a pixel, and each block of it
constexpr double kStoreSplit = 7.5;
// Cycles of a unit that loads pairs.
constexpr double kPixel = 1.5, kPartPixel = 18;  // to stage a pixel whose channels fill whole 16 bytes, or do not
constexpr double kFoldedPixel = 1.3;             // to stage a pixel of folded rows
constexpr double kPixelBlock = 8;                // to stage 32 channels of any of these pixels
constexpr double kGroupPixel = 4.5,
                 kPartGroupPixel = 14;  // the same as kPixel and kPartPixel, for one of several groups
constexpr double kStorePairs = 0.75;    // to store 16 lanes of an output
// Factors on a product of half a vector, over its share of a whole vector: on cores that halve vectors, and on others,
// where loads are the limit.
constexpr double kHalfVectorProduct = 1.2, kHalfOfWholeVectors = 1.75;
// Factor on a tile's costs where outputs are at most half a vector, on cores that do not halve vectors (read off six
// layers on a Zen 5, as kHalfOfWholeVectors is).
constexpr double kHalfTile = 0.5;
// All of a unit that loads pairs, over what the costs above say, on cores that do not halve vectors: rows that are not
// folded, more outputs than half a vector.
constexpr double kPairsOfWholeVectors = 1 / 1.3;
constexpr double kGroupsOfHalvedVectors = 0.78;  // likewise windows of several groups, on cores that halve vectors
// Cycles of the unit on folded rows, on cores that do not halve vectors. L1 holds the weights, and outputs are stored
// between products.
constexpr double kFoldedPair = 0.5;                      // of a pair of channels of a position, for 16 lanes
constexpr double kFoldedElement = 0.2, kFoldedRow = 10;  // to stage an element, and a row
constexpr double kFoldedGroupPixel = 4;                  // to stage a pixel of one of several groups

/// The model of windows (in_rows.h), over what it says: other kernels are estimated at 1.2 to 1.3 of their time.
constexpr double kWindow = 0.95;

/// Positions that are computed. Full halves end with a row, or go on with the next one where that takes fewer.
double computed_positions(const bf16::Blocking& b, const Bf16Unit& unit) {
  const bf16::Geometry& g = b.geometry;
  if (!unit.loads_full_halves) return static_cast<double>(g.n * g.rows * g.columns);
  const std::int64_t by_rows = g.rows * round_up(g.columns, b.positions);
  return static_cast<double>(g.n * std::min(by_rows, round_up(g.rows * g.columns, b.positions)));
}

/// Parts are split of every pixel that taps read, and a unit that loads pairs stages them: of one group in long runs,
/// of several groups pixel by pixel.
double staging_cycles(const Conv2dProblem& p, const bf16::Blocking& b, const Bf16Unit& unit) {
  if (b.input != bf16::InputPath::staged && b.input != bf16::InputPath::by_images) return 0;
  const bf16::Geometry& g = b.geometry;
  if (unit.loads_full_halves && b.terms.parts == 1) {
    const double rows = static_cast<double>(b.terms.gathered_rows) * kGatheredRow;
    return computed_positions(b, unit) * (static_cast<double>(b.terms.blocks * g.groups) * kStage + rows);
  }
  const auto pixels = static_cast<double>(p.n * std::min(p.h, p.ho * p.r) * std::min(p.w, p.wo * p.s));
  if (unit.loads_full_halves)
    return pixels * static_cast<double>(g.groups) * (kSplitPixel + static_cast<double>(b.terms.blocks) * kSplitBlock);
  if (g.groups == 1) {
    const double blocks = static_cast<double>(g.group_c) / static_cast<double>(bf16::kChannels);
    const double pixel = g.group_c % 8 == 0 ? kPixel : kPartPixel;
    return pixels * ((b.terms.fold > 1 ? kFoldedPixel : pixel) + blocks * kPixelBlock);
  }
  const auto blocks = static_cast<double>(ceil_div(g.group_c, bf16::kChannels) * g.groups);
  return pixels * blocks * (g.group_c % 8 == 0 ? kGroupPixel : kPartGroupPixel);
}

double storing_cycles(const bf16::Blocking& b, const Bf16Unit& unit, double panels) {
  const bf16::Geometry& g = b.geometry;
  const double positions = computed_positions(b, unit);
  if (unit.loads_full_halves) return positions * 2 * (b.terms.parts > 1 ? kStoreSplit : kStore) * panels;
  return positions * static_cast<double>(g.groups * ceil_div(g.group_k, bf16::kVector)) * kStorePairs;
}

/// Positions of a half by which tiles are counted. Costs of a tile were fitted to halves of two vectors an output, so
/// halves of one vector, with more positions, count as several. Not in 1x1 on cores that do not halve vectors: with so
/// few products, a half takes as long whatever its positions.
std::int64_t counted_positions(const bf16::Blocking& b, const Bf16Unit& unit) {
  const bool whole = core_kind(bf16::kVector) == CoreKind::whole_512;
  return whole && b.terms.tap_count() == 1 ? b.positions : std::min(b.positions, unit.positions);
}

/// What tiles cost besides their products.
double tile_cycles(const bf16::Blocking& b, const Bf16Unit& unit) {
  const bf16::Geometry& g = b.geometry;
  const std::int64_t tiles = g.n * g.rows * ceil_div(g.columns, counted_positions(b, unit)) * g.groups * g.panels;
  const auto steps = static_cast<double>(b.terms.steps());
  return static_cast<double>(tiles) * (unit.costs.tile + steps * unit.costs.step);
}

/// What a unit that loads pairs takes for folded rows.
double folded_cycles(const Conv2dProblem& p, const bf16::Blocking& b, const Bf16Unit& unit) {
  const bf16::Geometry& g = b.geometry;
  const auto vectors = static_cast<double>(ceil_div(g.group_k, bf16::kVector));
  const auto pairs = static_cast<double>(ceil_div(b.terms.channels, std::int64_t{2}) * b.terms.tap_count());
  const auto groups = static_cast<double>(g.groups);
  const double row = kFoldedRow + (g.groups == 1 ? kFoldedElement * static_cast<double>(p.w * p.c)
                                                 : kFoldedGroupPixel * static_cast<double>(p.w));
  return groups * (computed_positions(b, unit) * vectors * pairs * kFoldedPair + static_cast<double>(p.n * p.h) * row) +
         tile_cycles(b, unit);
}

/// Whether the model of windows (in_rows.h) was fitted to such a cut: of a unit that loads pairs, on a core that does
/// not halve vectors.
bool models_window(const Conv2dProblem& p, const bf16::Blocking& b, const Bf16Unit& unit) {
  if (unit.loads_full_halves || is_pointwise(p) || core_kind(bf16::kVector) != CoreKind::whole_512) return false;
  return b.input == bf16::InputPath::in_rows || (b.input == bf16::InputPath::staged && b.terms.fold == 1);
}

/// Products, staging, storing and tiles of all units of work.
double all_cycles(const Conv2dProblem& p, int products, const bf16::Blocking& b, const Bf16Unit& unit) {
  if (models_window(p, b, unit)) return kWindow * bf16::window_cycles(p, b, unit);
  const bf16::Geometry& g = b.geometry;
  const bool whole = core_kind(bf16::kVector) == CoreKind::whole_512;
  if (b.terms.fold > 1 && !unit.loads_full_halves && whole) return folded_cycles(p, b, unit);
  const double positions = computed_positions(b, unit);
  const std::int64_t vector = unit.loads_full_halves ? bf16::kVector : bf16::kVector / 2;
  const double panels = static_cast<double>(g.groups * ceil_div(g.group_k, vector) * vector) / bf16::kLanes;
  const double blocks = unit.loads_full_halves
                            ? static_cast<double>(b.terms.blocks)
                            : static_cast<double>(b.terms.channels) / static_cast<double>(bf16::kChannels);
  const double steps = panels * blocks * static_cast<double>(b.terms.tap_count() * products);
  // A step of a tile reads its weights, however few its positions are.
  const double tiles = std::max(1.0, positions / static_cast<double>(2 * counted_positions(b, unit)));
  const bool half = !unit.loads_full_halves && g.group_k <= vector;
  const double halved = !half ? 1 : whole ? kHalfOfWholeVectors : kHalfVectorProduct;
  const bool of_groups = g.groups > 1 && b.terms.tap_count() > 1 && core_kind(bf16::kVector) == CoreKind::halved_512;
  const double share = unit.loads_full_halves            ? 1
                       : of_groups                       ? kGroupsOfHalvedVectors
                       : whole && !half && g.groups == 1 ? kPairsOfWholeVectors
                                                         : 1;
  const double tile = half && whole ? kHalfTile : 1;
  return share * (steps * std::max(positions * unit.costs.position * halved, tiles * unit.costs.weights) +
                  staging_cycles(p, b, unit) + storing_cycles(b, unit, panels) + tile * tile_cycles(b, unit));
}

}  // namespace

double bf16_seconds(const Conv2dProblem& p, int products, const Bf16Unit& unit, int threads) {
  const bf16::Blocking b = bf16::blocking_of(p, products, unit, threads);
  const double cycles = all_cycles(p, products, b, unit);
  const double busy = static_cast<double>(ceil_div(b.work.count, threads));
  const double region = b.work.count > 1 ? region_cycles(threads) : 0;
  return (busy * (cycles / static_cast<double>(b.work.count) + unit.costs.start) + region) / kHertz;
}

}  // namespace gable::cpu
