// Flat: see loops.h.
#include "cpu/bf16/loops.h"

#include <algorithm>

namespace gable::cpu::bf16 {
namespace {

/// Adds epilogues for consecutive strip positions, except those between rows, which are no outputs.
void add_epilogues(TileLoop& loop, const float* accumulators, std::int64_t position, std::int64_t count) {
  const WorkUnit& work = loop.work();
  if (work.rows == 1 && count > 0) {
    return loop.add_epilogue(accumulators, nullptr, loop.row_of(0, position, count));
  }
  const std::int64_t strip_columns = loop.run().blocking.strip.columns;
  while (count > 0) {
    const std::int64_t row = position / strip_columns, column = position % strip_columns;
    const std::int64_t here = std::min(count, strip_columns - column);
    if (column < work.columns) {
      loop.add_epilogue(accumulators, nullptr, loop.row_of(row, column, std::min(here, work.columns - column)));
    }
    accumulators += here * kLanes;
    position += here;
    count -= here;
  }
}

void multiply_tile(TileLoop& loop, std::int64_t first, std::int64_t second) {
  const Tile& tile = loop.queue().tile();
  const float* accumulators = loop.queue().accumulators();
  if (second - first == kHalfPositions) {
    add_epilogues(loop, accumulators, first, tile.positions[0] + tile.positions[1]);  // both halves lie together
  } else {
    add_epilogues(loop, accumulators, first, tile.positions[0]);
    add_epilogues(loop, accumulators + kHalfFloats, second, tile.positions[1]);
  }
  loop.queue().multiply();
}

}  // namespace

void multiply_flat(TileLoop& loop, const InputView& input, const Chunk& chunk) {
  const Blocking& b = loop.run().blocking;
  const std::int64_t total = (loop.work().rows - 1) * b.strip.columns + loop.work().columns;
  const std::int64_t step = b.positions;
  Tile& tile = loop.queue().tile();
  for (std::int64_t first = 0; first < total; first += 2 * step) {
    const std::int64_t second = first + step;
    tile.operands.a[0] = input.first + first * input.position;
    tile.operands.a[1] = input.first + second * input.position;
    tile.positions[0] = static_cast<int>(std::min(step, total - first));
    tile.positions[1] = static_cast<int>(std::clamp<std::int64_t>(total - second, 0, step));
    const std::int64_t end = std::min(total, first + 2 * step);
    const TapRange taps = taps_of_rows(loop, first / b.strip.columns, (end - 1) / b.strip.columns + 1);
    loop.take_taps(taps);
    for (std::int64_t panel = chunk.begin; panel < chunk.end; ++panel) {
      loop.begin_panel(panel, taps.begin);
      multiply_tile(loop, first, second);
    }
  }
}

}  // namespace gable::cpu::bf16
