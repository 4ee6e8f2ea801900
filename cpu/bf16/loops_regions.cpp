// In the image, region by region: see loops.h.
#include "cpu/bf16/loops.h"
#include "cpu/bf16/regions.h"

namespace gable::cpu::bf16 {
namespace {

/// A region of rows x columns. Halves lie along `inner`; the two halves of a tile are neighbours along `outer`.
struct RegionCut {
  const Region& rows;
  const Region& columns;
  bool halves_are_columns;  // of few columns and several rows

  const Region& inner() const { return halves_are_columns ? rows : columns; }
  const Region& outer() const { return halves_are_columns ? columns : rows; }
};

/// `skipped`: positions that the previous tile has already computed. Output (out, in) is the first of `count`.
struct TileOutputs {
  std::int64_t out, in, skipped, count;
};

void add_epilogues(TileLoop& loop, const RegionCut& cut, const TileOutputs& tile) {
  const std::int64_t row = (cut.halves_are_columns ? tile.in : tile.out) - loop.work().first_row;
  const std::int64_t column = (cut.halves_are_columns ? tile.out : tile.in) - loop.work().first_column;
  const float* accumulators = loop.queue().accumulators() + tile.skipped * kLanes;
  if (loop.run().blocking.geometry.pool == 2) {
    const PixelRun pooled = loop.row_of(row / 2, column / 2, tile.count / 2);
    return loop.add_epilogue(accumulators, accumulators + kHalfFloats, pooled);
  }
  PixelRun pixels = loop.row_of(row, column, tile.count);
  if (cut.halves_are_columns) pixels.y_pixel *= loop.output().row;
  loop.add_epilogue(accumulators, nullptr, pixels);
  if (loop.queue().tile().positions[1] == 0) return;
  ++(cut.halves_are_columns ? pixels.column : pixels.row);
  loop.add_epilogue(accumulators + kHalfFloats, nullptr, pixels);
}

/// The input of the region's first output and first tap.
const std::uint16_t* first_input(const TileLoop& loop, const RegionCut& cut) {
  const Conv2dProblem& p = loop.run().problem;
  const Geometry& g = loop.run().blocking.geometry;
  const std::int64_t row = cut.rows.begin * p.stride_h - p.pad_top + cut.rows.first_tap * p.dilation_h;
  const std::int64_t column = cut.columns.begin * p.stride_w - p.pad_left + cut.columns.first_tap * p.dilation_w;
  const std::int64_t pixel = (loop.work().image * g.h + row) * g.w + column;
  return static_cast<const std::uint16_t*>(loop.run().x) + pixel * p.c + loop.work().group * g.group_c;
}

void multiply_region(TileLoop& loop, const Region& rows, const Region& columns) {
  const Blocking& b = loop.run().blocking;
  const std::int64_t positions = b.positions;
  const bool narrow = columns.end - columns.begin < positions && rows.end - rows.begin > 1;
  const RegionCut cut{rows, columns, b.geometry.pool == 1 && narrow};
  const Region& inner = cut.inner();
  const Region& outer = cut.outer();
  const std::uint16_t* x = first_input(loop, cut);
  Tile& tile = loop.queue().tile();
  tile.taps.rows = rows.taps;
  tile.taps.columns = columns.taps;
  tile.operands.position = inner.pitch;
  for (std::int64_t out = outer.begin; out < outer.end; out += 2) {
    for (std::int64_t in = inner.begin; in < inner.end; in += positions) {
      // A tile loads full halves. The last one of a region starts earlier, so that it reads nothing beyond the image.
      const std::int64_t read = std::min(in, inner.last_inside + 1 - positions);
      const std::int64_t count = std::min(positions, inner.end - in);
      tile.operands.a[0] = x + (out - outer.begin) * outer.pitch + (read - inner.begin) * inner.pitch;
      tile.operands.a[1] = tile.operands.a[0] + outer.pitch;
      tile.positions[0] = static_cast<int>(count);
      tile.positions[1] = out + 1 < outer.end ? tile.positions[0] : 0;
      for (std::int64_t panel = loop.work().first_panel; panel < loop.work().end_panel; ++panel) {
        loop.begin_panel(panel, rows.first_tap * loop.run().problem.s + columns.first_tap);
        add_epilogues(loop, cut, {out, in, in - read, count});
        loop.queue().multiply();
      }
    }
  }
}

}  // namespace

void multiply_regions(TileLoop& loop) {
  loop.set_blocks(loop.run().blocking.terms.block_channels, true);
  loop.queue().tile().taps.pitch = loop.run().problem.s;
  for_each_region(loop.run(), loop.work(),
                  [&](const Region& rows, const Region& columns) { multiply_region(loop, rows, columns); });
}

}  // namespace gable::cpu::bf16
