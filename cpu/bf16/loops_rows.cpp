// Row by row: see loops.h.
#include "cpu/bf16/loops.h"

namespace gable::cpu::bf16 {
namespace {

/// The taps of kernel rows that read the image for a row of output. All of them where both halves share their weights.
TapRange taps_of_row(const Run& run, std::int64_t out_row) {
  const Terms& terms = run.blocking.terms;
  if (run.unit.loads_full_halves) return {0, terms.tap_count()};
  const Conv2dProblem& p = run.problem;
  const TapRange rows = taps_inside(out_row * p.stride_h - p.pad_top, run.blocking.geometry.h, p.dilation_h, p.r);
  return {rows.begin * terms.tap_columns, rows.end * terms.tap_columns};
}

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

void multiply_rows(TileLoop& loop, const InputView& input, std::int64_t panel) {
  const Run& run = loop.run();
  const WorkUnit& work = loop.work();
  const Blocking& b = run.blocking;
  const std::int64_t step =
      run.unit.loads_full_halves ? b.positions : round_up(even_part(work.columns, b.positions), b.geometry.pool);
  Tile& tile = loop.queue().tile();
  loop.begin_panel(panel);
  for (std::int64_t row = 0; row < work.rows; row += 2) {
    tile.taps.of_half[0] = taps_of_row(run, work.first_row + row);
    tile.taps.of_half[1] = taps_of_row(run, work.first_row + row + 1);
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
