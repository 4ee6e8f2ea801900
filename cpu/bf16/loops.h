// The loop nests over the tiles of a work unit. They only compute addresses.
#pragma once

#include "cpu/bf16/staging.h"
#include "cpu/bf16/tile_loop.h"

namespace gable::cpu::bf16 {

/// A tile is the same columns of two output rows, of one panel. Kernel rows that read only padding are skipped. The
/// only loop nest for a 2x2 pool of staged input. Without a pool, only units that load full halves take this and
/// multiply_flat().
void multiply_rows(TileLoop& loop, const InputView& input, std::int64_t panel);

/// A tile is consecutive positions of the strip, or consecutive pixels of a pointwise problem. All panels of a chunk
/// are computed for a tile before the next tile. Kernel rows that read only padding are skipped.
void multiply_flat(TileLoop& loop, const InputView& input, const Chunk& chunk);

/// The taps of the kernel rows that read the image for some row of [row, end) of the work unit.
TapRange taps_of_rows(const TileLoop& loop, std::int64_t row, std::int64_t end);

/// 1x1 of bf16: a tile is two halves of consecutive pixels, of one row or of two. All panels of a chunk are computed
/// for a tile before the next tile. In place, the last half of a row starts where it ends with the row.
void multiply_panels(TileLoop& loop, const InputView& input, const Chunk& chunk, bool staged);
/// Runs the last epilogue that multiply_panels() left pending.
void finish_panels(TileLoop& loop);

/// For a unit that takes one half at a time: halves along rows, or flat. The halves of a group take a few blocks of a
/// panel's channels while L1 holds their weights, and keep their accumulators in between.
void multiply_runs(TileLoop& loop, const InputView& input, const Chunk& chunk, bool flat);

/// Tiles read the image itself, region by region. All panels are computed for a tile before the next tile.
void multiply_regions(TileLoop& loop);

/// A tile is two pixels of up to 16 images each, in the strip of stage_images().
void multiply_images(TileLoop& loop, const std::uint16_t* strip, std::int64_t images);

}  // namespace gable::cpu::bf16
