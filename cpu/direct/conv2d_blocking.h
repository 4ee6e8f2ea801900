// How a convolution is cut: into units of work for the threads, and inside a unit so that its data stays in L1 and L2.
//   unit    (images, rows × pixels of output, group, out tile of ≤ 128 lanes); spread over threads. If images are
//           small, a unit has several, so that a panel's weights come into L2 once for all of them. If groups of few
//           channels are staged, a unit of one thread has several, whose pixels are copied as whole lines. Out tiles
//           are narrower where threads would be left without a unit.
//   chunk   input channels whose weights for one panel (2 vectors of lanes) fill at most 3/8 of L2. Partial sums of
//           earlier chunks are kept in an L2 buffer. Most layers have one chunk, and accumulators stay in registers.
//   panel   the lanes of one register tile. Its weights for a chunk stream from L2 once a register tile.
//   tile    a register tile. If the image is f32 NHWC, only tiles that touch the padding read a staged strip. If no tap
//           reads padding at both ends of a row, no tile reads a strip: taps skip the pixels where they read padding.
// A unit computes all its rows and pixels with one panel before it takes the next panel.
#pragma once

#include <gable/problem.h>

#include <cstddef>
#include <cstdint>

#include "cpu/common/strips.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_input.h"
#include "cpu/common/unit_window.h"
#include "cpu/direct/conv2d_kernels.h"

namespace gable::cpu {

/// The register tile of one convolution row.
struct TileChoice {
  std::int64_t pixels;       // of the widest one
  std::int64_t panel_lanes;  // of one panel; a group's last panel may have fewer
  bool row_pair;      // two convolution rows follow one another, and the second tile stores the 2×2 max-pool of both
  bool image_pair;    // a tile is the same row of two images
  bool two_rows;      // a tile is two rows of one image, where both have the same taps inside
  bool stores;        // the tile stores the final result; else the store kernel finishes a strip
  bool non_temporal;  // its stores are non-temporal, where y is aligned to vectors
  bool prefetches_output;  // prefetches the lines of its ordinary stores
};

/// Where tiles read their input.
struct InputAccess {
  bool never_staged;   // tiles always read in place
  bool near_pixels;    // all input is staged, so that tiles of one vector know the distance of pixels
  bool skips_padding;  // in place though there is padding: padding taps skip the pixels at a tile's ends
  bool skips_several;  // a tile may have several padding pixels at one end
  StripAxes axes;      // of strips
};

/// Input channels of a group, in chunks of whole tiles of in_lanes lanes.
struct ChannelCut {
  std::int64_t in_lanes, chunk, chunks;
};

/// Offsets of the parts of one thread's workspace, in floats; staged input comes first.
struct WorkspaceParts {
  std::size_t partial;  // accumulators kept for the next chunk
  std::size_t above;    // accumulators kept for the row below
  std::size_t strip, block, bias;
  std::size_t floats;  // of all
};

struct Conv2dBlocking {
  Conv2dProblem problem;  // as the loops compute it: after with_pixels_in_a_row()
  TileChoice tile;
  InputAccess input;
  ChannelCut channels;
  UnitGrid units;            // its groups are blocks of unit_groups groups
  std::int64_t unit_lanes;   // of an out tile: whole panels
  std::int64_t unit_groups;  // groups whose input a unit stages together
  bool prefetches_weights;   // tiles prefetch the next panel's weights
  WorkspaceParts workspace;
};

Conv2dBlocking choose_blocking(const Conv2dProblem& problem, const Conv2dKernels& kernels, int threads);

/// The convolution pixels of a window, cut into register tiles.
inline Tiles tiles_of(const Conv2dBlocking& b, const UnitWindow& window) {
  return {window.conv_pixels, b.tile.pixels, b.tile.row_pair ? 2 : 1};
}

/// The pixels of a unit that are read in place.
PixelRange pixels_in_place(const Conv2dBlocking& blocking, const UnitWindow& window);

}  // namespace gable::cpu
