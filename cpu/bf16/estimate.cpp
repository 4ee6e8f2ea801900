// The time of the units on a layer: enough to choose between the units of one machine, of which AMX multiplies fastest
// but takes whole tiles of 32 positions, and a while to start.
#include <algorithm>

#include "cpu/bf16/blocking.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr double kHertz = 3e9;
// Cycles of a position: to stage a block of 32 channels, also of f16 or f32 split into parts, and to store 16 lanes.
constexpr double kStage = 8;
constexpr double kSplit = 25;
constexpr double kStore = 3;

}  // namespace

double bf16_seconds(const Conv2dProblem& p, int products, const Bf16Unit& unit, int threads) {
  const bf16::Blocking b = bf16::blocking_of(p, products, unit, threads);
  const bf16::Geometry& g = b.geometry;
  const std::int64_t columns = unit.loads_full_halves ? round_up(g.columns, b.positions) : g.columns;
  const double positions = static_cast<double>(g.n * g.rows * columns);
  const std::int64_t vector = unit.loads_full_halves ? bf16::kVector : bf16::kVector / 2;
  const double panels = static_cast<double>(g.groups * ceil_div(g.group_k, vector) * vector) / bf16::kLanes;
  const double blocks = unit.loads_full_halves
                            ? static_cast<double>(b.terms.blocks)
                            : static_cast<double>(b.terms.channels) / static_cast<double>(bf16::kChannels);
  const double steps = panels * blocks * static_cast<double>(b.terms.tap_count() * products);
  // A step of a tile reads its weights, however few its positions are.
  const double tiles = std::max(1.0, positions / (2 * b.positions));
  const bool stages = b.input == bf16::InputPath::staged || b.input == bf16::InputPath::by_images;
  const double staging = !stages ? 0 : b.terms.parts > 1 ? kSplit : kStage;
  const double cycles = steps * std::max(positions * unit.position_cycles, tiles * unit.weights_cycles) +
                        positions * (staging * blocks * static_cast<double>(g.groups) + 2 * kStore * panels);
  const double busy = static_cast<double>(ceil_div(b.work.count, threads));
  return busy * (cycles / static_cast<double>(b.work.count) + unit.start_cycles) / kHertz;
}

}  // namespace gable::cpu
