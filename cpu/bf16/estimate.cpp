// The time of the units on a layer: enough to choose between the units of one machine, of which AMX multiplies fastest
// but takes whole tiles of 32 positions, and a while to start.
#include <algorithm>

#include "cpu/bf16/blocking.h"
#include "cpu/common/cache.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr double kHertz = 3e9;
// Cycles of a position: to stage a block of 32 channels, also of f16 or f32 split into parts, and to store 16 lanes.
constexpr double kStage = 8;
constexpr double kSplit = 25;
constexpr double kStore = 3;
constexpr double kFarLine = 8;  // a pixel of a group, in an image that L2 does not keep

/// Positions that are computed. Full halves end with a row, or go on with the next one where that takes fewer.
double computed_positions(const bf16::Blocking& b, const Bf16Unit& unit) {
  const bf16::Geometry& g = b.geometry;
  if (!unit.loads_full_halves) return static_cast<double>(g.n * g.rows * g.columns);
  const std::int64_t by_rows = g.rows * round_up(g.columns, b.positions);
  return static_cast<double>(g.n * std::min(by_rows, round_up(g.rows * g.columns, b.positions)));
}

/// A unit that loads pairs stages every pixel that taps read: of one group in long runs, of several groups pixel by
/// pixel.
double staging_cycles(const Conv2dProblem& p, const bf16::Blocking& b, const Bf16Unit& unit) {
  if (b.input != bf16::InputPath::staged && b.input != bf16::InputPath::by_images) return 0;
  const bf16::Geometry& g = b.geometry;
  const double block = b.terms.parts > 1 ? kSplit : kStage;
  if (unit.loads_full_halves) {
    return computed_positions(b, unit) * static_cast<double>(b.terms.blocks * g.groups) * block;
  }
  const auto pixels = static_cast<double>(p.n * std::min(p.h, p.ho * p.r) * std::min(p.w, p.wo * p.s));
  if (g.groups == 1) return pixels * block * static_cast<double>(g.group_c) / static_cast<double>(bf16::kChannels);
  const bool far = p.h * p.w * p.c * static_cast<std::int64_t>(size_of(p.dtype)) > l2_bytes();
  const auto blocks = static_cast<double>(ceil_div(g.group_c, bf16::kChannels) * g.groups);
  return pixels * blocks * (block + (far ? kFarLine : 0));
}

/// What tiles cost besides their products.
double tile_cycles(const bf16::Blocking& b, const Bf16Unit& unit) {
  const bf16::Geometry& g = b.geometry;
  const std::int64_t tiles = g.n * g.rows * ceil_div(g.columns, std::int64_t{b.positions}) * g.groups * g.panels;
  return static_cast<double>(tiles) * unit.tile_cycles;
}

}  // namespace

double bf16_seconds(const Conv2dProblem& p, int products, const Bf16Unit& unit, int threads) {
  const bf16::Blocking b = bf16::blocking_of(p, products, unit, threads);
  const bf16::Geometry& g = b.geometry;
  const double positions = computed_positions(b, unit);
  const std::int64_t vector = unit.loads_full_halves ? bf16::kVector : bf16::kVector / 2;
  const double panels = static_cast<double>(g.groups * ceil_div(g.group_k, vector) * vector) / bf16::kLanes;
  const double blocks = unit.loads_full_halves
                            ? static_cast<double>(b.terms.blocks)
                            : static_cast<double>(b.terms.channels) / static_cast<double>(bf16::kChannels);
  const double steps = panels * blocks * static_cast<double>(b.terms.tap_count() * products);
  // A step of a tile reads its weights, however few its positions are.
  const double tiles = std::max(1.0, positions / (2 * b.positions));
  const double cycles = steps * std::max(positions * unit.position_cycles, tiles * unit.weights_cycles) +
                        staging_cycles(p, b, unit) + positions * 2 * kStore * panels + tile_cycles(b, unit);
  const double busy = static_cast<double>(ceil_div(b.work.count, threads));
  return busy * (cycles / static_cast<double>(b.work.count) + unit.start_cycles) / kHertz;
}

}  // namespace gable::cpu
