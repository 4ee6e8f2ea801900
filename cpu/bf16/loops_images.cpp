// By images: see loops.h.
#include "cpu/bf16/loops.h"
#include "cpu/bf16/regions.h"

namespace gable::cpu::bf16 {
namespace {

struct Pixel {
  std::int64_t row, column;  // of output
};

/// A region of outputs that read the same taps, and how its input lies in the strip.
class ImageRegion {
 public:
  ImageRegion(const TileLoop& loop, const Region& rows, const Region& columns)
      : rows_(rows),
        columns_(columns),
        problem_(loop.run().problem),
        strip_columns_(loop.run().blocking.strip.columns) {
    const Geometry& g = loop.run().blocking.geometry;
    source_rows_ = source_rows(problem_, g, loop.work());
    source_columns_ = source_columns(problem_, g, loop.work());
  }

  std::int64_t pixels() const { return (rows_.end - rows_.begin) * width(); }
  Pixel pixel(std::int64_t index) const { return {rows_.begin + index / width(), columns_.begin + index % width()}; }

  /// The strip's pixel that the output's first tap reads.
  std::int64_t strip_pixel(const Pixel& out) const {
    const Conv2dProblem& p = problem_;
    const std::int64_t row = out.row * p.stride_h - p.pad_top + rows_.first_tap * p.dilation_h;
    const std::int64_t column = out.column * p.stride_w - p.pad_left + columns_.first_tap * p.dilation_w;
    return (row - source_rows_.first) / source_rows_.step * strip_columns_ +
           (column - source_columns_.first) / source_columns_.step;
  }

 private:
  std::int64_t width() const { return columns_.end - columns_.begin; }

  const Region& rows_;
  const Region& columns_;
  const Conv2dProblem& problem_;
  std::int64_t strip_columns_;
  SourceRange source_rows_{}, source_columns_{};
};

/// One pass over the strip: a chunk of panels for the first `images` images.
struct ImagesPass {
  const std::uint16_t* strip;
  std::int64_t images;
  Chunk chunk;
};

void multiply_panels(TileLoop& loop, const Chunk& chunk, std::int64_t first_tap, const Pixel (&pixels)[2]) {
  const Tile& tile = loop.queue().tile();
  for (std::int64_t panel = chunk.begin; panel < chunk.end; ++panel) {
    loop.begin_panel(panel, first_tap);
    for (std::int64_t half = 0; half < 2 && tile.positions[half] > 0; ++half) {
      PixelRun run = loop.row_of(pixels[half].row - loop.work().first_row,
                                 pixels[half].column - loop.work().first_column, tile.positions[half]);
      run.y_pixel *= loop.output().image;
      loop.add_epilogue(loop.queue().accumulators() + half * kHalfFloats, nullptr, run);
    }
    loop.queue().multiply();
  }
}

/// Computes tiles of two pixels.
void multiply_region(TileLoop& loop, const ImagesPass& pass, const Region& rows, const Region& columns) {
  const ImageRegion region(loop, rows, columns);
  Tile& tile = loop.queue().tile();
  tile.taps.rows = rows.taps;
  tile.taps.columns = columns.taps;
  const std::int64_t strip_pixel = loop.run().blocking.work.images * kChannels;
  for (std::int64_t first = 0; first < region.pixels(); first += 2) {
    const bool second = first + 1 < region.pixels();
    const Pixel pixels[2] = {region.pixel(first), region.pixel(second ? first + 1 : first)};
    for (std::int64_t half = 0; half < 2; ++half) {
      tile.operands.a[half] = pass.strip + region.strip_pixel(pixels[half]) * strip_pixel;
    }
    tile.positions[0] = static_cast<int>(pass.images);
    tile.positions[1] = second ? static_cast<int>(pass.images) : 0;
    multiply_panels(loop, pass.chunk, rows.first_tap * loop.run().problem.s + columns.first_tap, pixels);
  }
}

}  // namespace

void multiply_images(TileLoop& loop, const std::uint16_t* strip, std::int64_t images) {
  Tile& tile = loop.queue().tile();
  tile.operands.position = kChannels;
  loop.set_blocks(loop.run().blocking.strip.block, false);
  tile.taps.pitch = loop.run().problem.s;
  for (Chunk chunk = loop.first_chunk(); chunk.begin < chunk.end; chunk = loop.chunk_after(chunk)) {
    loop.begin_chunk_prefetch(loop.chunk_after(chunk));
    for_each_region(loop.run(), loop.work(), [&](const Region& rows, const Region& columns) {
      multiply_region(loop, {strip, images, chunk}, rows, columns);
    });
  }
}

}  // namespace gable::cpu::bf16
