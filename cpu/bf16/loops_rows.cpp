// Row by row: see loops.h.
#include "cpu/bf16/loops.h"

#include <algorithm>

namespace gable::cpu::bf16 {
namespace {

void add_epilogues(TileLoop& loop, std::int64_t row, std::int64_t column, std::int64_t count) {
  const float* accumulators = loop.queue().accumulators();
  if (loop.run().blocking.geometry.pool == 2) {
    const PixelRun pooled = loop.row_of(row / 2, column / 2, count / 2);
    return loop.add_epilogue(accumulators, accumulators + kHalfFloats, pooled);
  }
  loop.add_epilogue(accumulators, nullptr, loop.row_of(row, column, count));
  if (loop.queue().tile().positions[1] == 0) return;
  loop.add_epilogue(accumulators + kHalfFloats, nullptr, loop.row_of(row + 1, column, count));
}

}  // namespace

TapRange taps_of_rows(const TileLoop& loop, std::int64_t row, std::int64_t end) {
  const Blocking& b = loop.run().blocking;
  const Axis axis = row_axis(loop.run().problem, b.geometry);
  if (axis.taps == 1) return {0, b.terms.tap_columns};
  // Both ends of a row's taps fall from row to row.
  const std::int64_t begin = axis.taps_of(loop.work().first_row + end - 1).begin;
  const std::int64_t last = axis.taps_of(loop.work().first_row + row).end;
  const TapRange rows = b.terms.tap_rows_of({begin, std::max(begin, last)});
  return {rows.begin * b.terms.tap_columns, rows.end * b.terms.tap_columns};
}

void multiply_rows(TileLoop& loop, const InputView& input, std::int64_t panel) {
  const Run& run = loop.run();
  const WorkUnit& work = loop.work();
  const Blocking& b = run.blocking;
  const std::int64_t step =
      run.unit.loads_full_halves ? b.positions : round_up(even_part(work.columns, b.positions), b.geometry.pool);
  Tile& tile = loop.queue().tile();
  if (!run.unit.loads_full_halves) loop.begin_panel(panel);
  for (std::int64_t row = 0; row < work.rows; row += 2) {
    const std::int64_t end = std::min(row + 2, work.rows);
    if (run.unit.loads_full_halves) {  // both halves share their weights
      const TapRange taps = taps_of_rows(loop, row, end);
      loop.take_taps(taps);
      loop.begin_panel(panel, taps.begin);
    } else {
      tile.taps.of_half[0] = taps_of_rows(loop, row, row + 1);
      tile.taps.of_half[1] = taps_of_rows(loop, row + 1, end);
    }
    for (std::int64_t column = 0; column < work.columns; column += step) {
      const std::int64_t count = std::min(step, work.columns - column);
      tile.operands.a[0] = input.first + row * input.row + column * input.position;
      tile.operands.a[1] = tile.operands.a[0] + input.row;
      tile.positions[0] = static_cast<int>(count);
      tile.positions[1] = row + 1 < work.rows ? static_cast<int>(count) : 0;
      add_epilogues(loop, row, column, count);
      loop.queue().multiply();
    }
  }
}

}  // namespace gable::cpu::bf16
