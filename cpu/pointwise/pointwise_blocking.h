// How PointwisePlan cuts a problem.
//   tile    up to 14 pixels x 2 vectors of output lanes, or 9 x 3, 6 x 4, 2 x 8; sums over all input channels stay in
//           registers
//   panel   the lanes of a tile; its packed weights are one stream
//   band    tiles that use one panel before the next panel is read
//   unit    a block of pixels and lanes of a group of channels, the work that a thread takes at a time
// Loop order. A tile goes through all panels while its pixels are in L1: each input is read once, and whole pixels of
// the output are written one after another. Each tile then reads all weights from L2, so they must fit half of it.
// Larger weights are read once a band instead: pixels that fit half of L2 pass under one panel after another.
// Strips. Pixels that lie a multiple of 4 KiB apart share one set of L1, which has fewer ways than a tile has pixels.
// They are copied into a strip. Rows of a strided image that are shorter than a tile are copied too, to make full
// tiles, and so are all pixels of a band. A copied cache line costs about 10 cycles, and 14 lines serve 224 cycles of
// products in every panel.
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/pointwise/pointwise_kernels.h"

namespace gable::cpu {

struct PointwiseTileSize {
  std::int64_t vectors, pixels;
};

struct PointwiseUnits {
  std::int64_t pixels, lanes;              // of a unit
  std::int64_t pixel_blocks, lane_blocks;  // units are numbered [pixel block][group of channels][lane block]
};

struct PointwiseBlocking {
  std::int64_t pixels;      // of the output, all images
  std::int64_t row_pixels;  // output pixels whose inputs are equally far apart: a row's, or all
  bool copies_input;        // copies a band at a time into a strip; f16 and bf16 become f32 there
  bool widens_tiles;        // widens one tile at a time: a band is one tile, which all panels use after its copy
  bool prefetches_widened;  // a tile prefetches the pixels that are widened next
  bool panels_outside;      // panels are the outer loop, tiles of a band the inner one; else a band is one tile
  bool runs_of_tiles;       // in place, of one panel of few vectors: tiles follow one another in one call
  std::int64_t run_pixels;  // in place, of several panels: pixels whose tiles follow one another in one call, for one
                            // panel after the other; 0: a tile takes all panels before the next tile does
  bool holds_weights;       // tiles that follow one another keep weights in registers
  bool non_temporal;        // stores of y, if it is aligned to vectors
  PointwiseTileSize tile;
  std::int64_t strip_pixel;  // floats from pixel to pixel of a strip
  std::int64_t band_pixels;
  PointwiseUnits units;
};

/// The fewest tiles of a band for which copying its input pays.
constexpr std::int64_t kMinTilesPerBand = 4;

/// Whether all pixels fit a tile of eight vectors: each weight is then read and used once.
bool is_matrix_by_vector(const Conv2dProblem& problem, const PointwiseKernels& kernels);

/// Whether all weights fit half of L2.
bool l2_keeps_weights(const Conv2dProblem& problem);

/// The most pixels whose channels fit half of L2.
std::int64_t cached_pixels(const Conv2dProblem& problem);

/// One group of the problem, as if its channels lay together.
Conv2dProblem problem_of_group(const Conv2dProblem& problem);

/// Chooses the blocking of each group. Precondition: pointwise_refusal() is empty.
PointwiseBlocking pointwise_blocking(const Conv2dProblem& problem, const PointwiseKernels& kernels, int threads);

}  // namespace gable::cpu
