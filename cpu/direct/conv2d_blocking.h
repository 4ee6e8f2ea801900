// How a convolution is cut: into units of work for the threads, and inside a unit so that its data stays in L1/L2.
//   unit    (image, rows × pixels of output, group, out tile of ≤ 128 lanes); spread over threads. Of small images it
//           has several, so that a panel's weights come into L2 once for all of them.
//   chunk   input channels whose weights for one panel (2 vectors of lanes) fill at most 3/8 of L2; sums of earlier
//           chunks wait in an L2 buffer. Most layers have one chunk, and then sums never leave the registers.
//   panel   the lanes of one register tile. Its weights for a chunk stream from L2 once a register tile.
//   tile    a register tile; where the image is f32 NHWC, only tiles that touch the padding read a staged strip, and
//           none do where a tap leaves out at most one pixel at either end.
// All rows and pixels of the unit pass under one panel before the next panel comes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/check.h"
#include "cpu/common/tiling.h"
#include "cpu/direct/conv2d_kernels.h"

namespace gable::cpu {

/// A problem as the loops see it: 1×1 convolutions flattened into one long row, depthwise turned into one group whose
/// lanes are channels.
struct Conv2dGeometry {
  std::int64_t n, h, w, ho, wo, out_h, out_w;
  std::int64_t groups, group_c, group_k;  // channels of one group
  bool depthwise;
};

struct Conv2dBlocking {
  Conv2dGeometry geometry;
  bool row_pair;      // the tile kernel pools 2×2: two rows go through it one after the other, of depthwise at once
  bool image_pair;    // a tile is the same row of two images
  bool tile_stores;   // the tile kernel stores the final result; else the store kernel finishes a strip
  bool never_staged;  // the input is always read in place
  bool trims;         // its padding, too: taps leave out the pixels that lie there
  bool weights_once;  // units that share weights follow one another, instead of those that share input
  bool streams;       // the tile kernel's stores pass the caches by, where y is aligned to vectors
  AxisMap rows, columns;
  std::int64_t tile_pixels;  // of the widest register tile, in one row
  std::int64_t panel_lanes, out_tiles, in_lanes, chunk_channels, chunks;
  std::int64_t unit_images, unit_rows, unit_pixels;  // of the (pooled) output
  std::int64_t row_blocks, pixel_blocks, units;
  /// Floats of one thread's workspace and where its parts begin.
  std::size_t stage_floats, partial_offset, above_offset, strip_offset, block_offset, bias_offset, thread_floats;

  /// Rows/columns of convolution output under `outputs` rows/columns of pooled output.
  static std::int64_t conv_extent(std::int64_t outputs, std::int64_t window, std::int64_t stride) {
    return (outputs - 1) * stride + window;
  }
};

/// Whether the weights come from memory while the input stays in the last level: then units that share weights had
/// better follow one another.
bool reads_weights_once(const Conv2dProblem& problem);

Conv2dBlocking choose_blocking(const Conv2dProblem& problem, const Conv2dKernels& kernels, int threads);

}  // namespace gable::cpu
