// In the image, region by region: see loops.h.
#include "cpu/bf16/loops.h"
#include "cpu/bf16/regions.h"

namespace gable::cpu::bf16 {
namespace {

/// A region of rows x columns. Halves lie along `inner`; the two halves of a tile are neighbours along `outer`, or, on
/// the last one of an odd number of lines, along `inner`.
struct RegionCut {
  const Region& rows;
  const Region& columns;
  bool halves_are_columns;  // of few columns and several rows

  const Region& inner() const { return halves_are_columns ? rows : columns; }
  const Region& outer() const { return halves_are_columns ? columns : rows; }
};

/// What a half of a tile computes: the outputs from (out, in) on, after `skipped` positions that another half computes.
struct HalfOutputs {
  std::int64_t out, in, skipped, count;
};

/// The pixels of a half's outputs; with a pool, those of the tile.
PixelRun pixels_of(const TileLoop& loop, const RegionCut& cut, const HalfOutputs& outputs) {
  const std::int64_t row = (cut.halves_are_columns ? outputs.in : outputs.out) - loop.work().first_row;
  const std::int64_t column = (cut.halves_are_columns ? outputs.out : outputs.in) - loop.work().first_column;
  if (loop.run().blocking.geometry.pool == 2) return loop.row_of(row / 2, column / 2, outputs.count / 2);
  PixelRun pixels = loop.row_of(row, column, outputs.count);
  if (cut.halves_are_columns) pixels.y_pixel *= loop.output().row;
  return pixels;
}

void add_epilogues(TileLoop& loop, const RegionCut& cut, const HalfOutputs (&halves)[2]) {
  const float* accumulators = loop.queue().accumulators();
  if (loop.run().blocking.geometry.pool == 2) {
    const float* first = accumulators + halves[0].skipped * kLanes;
    return loop.add_epilogue(first, first + kHalfFloats, pixels_of(loop, cut, halves[0]));
  }
  for (const HalfOutputs& half : halves) {
    if (half.count > 0) {
      loop.add_epilogue(accumulators + half.skipped * kLanes, nullptr, pixels_of(loop, cut, half));
    }
    accumulators += kHalfFloats;
  }
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

/// A half of the tile at output (out, in), if the region has it. `x` is the input of the region's first output. A tile
/// loads full halves: the last one of a region starts earlier, so that it reads nothing beyond the image.
HalfOutputs set_half(Tile& tile, int half, const RegionCut& cut, const std::uint16_t* x, std::int64_t positions,
                     std::int64_t out, std::int64_t in) {
  const Region& inner = cut.inner();
  const Region& outer = cut.outer();
  const std::int64_t count = out < outer.end ? std::clamp<std::int64_t>(inner.end - in, 0, positions) : 0;
  const std::int64_t read = std::min(in, inner.last_inside + 1 - positions);
  tile.positions[half] = static_cast<int>(count);
  if (count > 0) tile.operands.a[half] = x + (out - outer.begin) * outer.pitch + (read - inner.begin) * inner.pitch;
  return {out, in, in - read, count};
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
    const bool last_line = out + 1 == outer.end;
    for (std::int64_t in = inner.begin; in < inner.end; in += last_line ? 2 * positions : positions) {
      const HalfOutputs halves[2] = {set_half(tile, 0, cut, x, positions, out, in),
                                     last_line ? set_half(tile, 1, cut, x, positions, out, in + positions)
                                               : set_half(tile, 1, cut, x, positions, out + 1, in)};
      for (std::int64_t panel = loop.work().first_panel; panel < loop.work().end_panel; ++panel) {
        loop.begin_panel(panel, rows.first_tap * loop.run().problem.s + columns.first_tap);
        add_epilogues(loop, cut, halves);
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
