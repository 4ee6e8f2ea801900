// The loop nests over the tiles of a work unit. They only compute addresses.
#pragma once

#include "cpu/bf16/staging.h"
#include "cpu/bf16/tile_loop.h"

namespace gable::cpu::bf16 {

/// The same columns of two output rows a tile, for one panel. The only nest for a 2x2 pool of staged input.
void multiply_rows(TileLoop& loop, const InputView& input, std::int64_t panel);

/// Consecutive positions of the strip, or of a pointwise problem's pixels; all panels of a chunk for each tile.
void multiply_flat(TileLoop& loop, const InputView& input, const Chunk& chunk);

/// Input in the image, region by region; all panels for each tile.
void multiply_regions(TileLoop& loop);

/// Two pixels of up to 16 images each a tile, in the strip of stage_images().
void multiply_images(TileLoop& loop, const std::uint16_t* strip, std::int64_t images);

}  // namespace gable::cpu::bf16
