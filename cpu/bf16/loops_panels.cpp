// 1x1 of bf16: see loops.h.
#include "cpu/bf16/loops.h"

namespace gable::cpu::bf16 {
namespace {

/// Consecutive positions of the input whose outputs are consecutive pixels: the whole work unit, or one of its rows.
struct InputRuns {
  std::int64_t count, length;
  std::int64_t readable;  // positions, counted from the first, that halves may load
};

InputRuns runs_of(const Run& run, const WorkUnit& work, bool staged) {
  const Blocking& b = run.blocking;
  if (!staged) return {work.rows, work.columns, b.geometry.columns - work.first_column};
  const bool one_run = work.rows == 1 || (work.columns == b.geometry.columns && b.strip.columns == work.columns);
  const std::int64_t length = one_run ? work.rows * work.columns : work.columns;
  return {one_run ? 1 : work.rows, length, round_up(length, b.positions)};
}

/// The halves of all runs, one after another.
class Halves {
 public:
  Halves(TileLoop& loop, const InputView& input, const InputRuns& runs, std::int64_t first_lane)
      : loop_(loop), input_(input), runs_(runs), step_(loop.run().blocking.positions), first_lane_(first_lane) {}

  bool left() const { return row_ < runs_.count; }
  PanelHalf next() {
    const std::int64_t start = std::min(first_, runs_.readable - step_);
    const std::int64_t pixel = loop_.output().first + row_ * loop_.output().row + first_;
    const PanelHalf half{.a = input_.first + row_ * input_.row + start * input_.position,
                         .skipped = static_cast<int>(first_ - start),
                         .pixels = static_cast<int>(std::min(step_, runs_.length - first_)),
                         .y = static_cast<std::uint16_t*>(loop_.run().y) + pixel * loop_.run().problem.k + first_lane_};
    first_ += step_;
    if (first_ < runs_.length) return half;
    first_ = 0;
    ++row_;
    return half;
  }

 private:
  TileLoop& loop_;
  const InputView& input_;
  InputRuns runs_;
  std::int64_t step_, first_lane_, row_ = 0, first_ = 0;
};

}  // namespace

void multiply_panels(TileLoop& loop, const InputView& input, const Chunk& chunk, bool staged) {
  const Run& run = loop.run();
  const Geometry& g = run.blocking.geometry;
  const std::int64_t group = loop.work().group, group_lanes = std::min(g.group_k, g.k - group * g.group_k);
  const std::int64_t first_lane = group * g.group_k + chunk.begin * kLanes;
  loop.begin_panel(chunk.begin);
  PanelTile& tile = loop.panel_tile();
  tile.operands = loop.queue().tile().operands;
  tile.lanes = std::min(group_lanes, chunk.end * kLanes) - chunk.begin * kLanes;
  tile.bias = run.bias == nullptr ? nullptr : run.bias + first_lane;
  Halves halves(loop, input, runs_of(run, loop.work(), staged), first_lane);
  while (halves.left()) {
    tile.halves = 0;
    while (tile.halves < run.blocking.panel_halves && halves.left()) tile.half[tile.halves++] = halves.next();
    run.unit.panels(tile);
  }
}

void finish_panels(TileLoop& loop) {
  loop.panel_tile().lanes = 0;
  loop.run().unit.panels(loop.panel_tile());
}

}  // namespace gable::cpu::bf16
