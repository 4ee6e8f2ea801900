// How a depthwise convolution of NHWC images is cut.
//   unit           (image, rows of output, all blocks of channels or one of them); spread over threads
//   pixel block    columns of the unit whose input rows are staged together, so many that those under one row of
//                  output stay in L1. All rows of a pixel block come before the next. Input that is read in place is
//                  one pixel block: whole rows follow one another in memory
//   tile           outputs of a row x the channels of the block, vector after vector
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <vector>

#include "cpu/depthwise/depthwise_rows.h"
#include "cpu/depthwise/depthwise_tile.h"

namespace gable::cpu {

struct ChannelBlock {
  const DepthwiseTiles* tiles;
  const RowKernels* rows;
  std::int64_t first;         // output channel
  PixelVectors vectors;       // its channels
  std::int64_t first_vector;  // of its section
  std::size_t section;
};

/// Channels that vectors of one width compute. Where these do not divide the channels, the last vector overlaps the one
/// before it; channels fewer than lanes leave lanes unused.
struct ChannelSection {
  const Target* target;
  std::int64_t lanes, first, channels;
  std::int64_t packed_lanes_before;  // of the sections before it
  bool paired;                       // vectors come in pairs, of the even and the odd channels of twice the lanes

  std::int64_t vectors() const { return ceil_div(channels, lanes); }
  std::int64_t last() const { return channels > lanes ? channels - lanes : 0; }
  /// The channel of a lane of a vector; channels or more: unused.
  std::int64_t channel(std::int64_t vector, std::int64_t lane) const {
    if (paired) return vector / 2 * 2 * lanes + 2 * lane + vector % 2;
    return (vector + 1 == vectors() ? last() : vector * lanes) + lane;
  }
};

struct PixelBlock {
  std::size_t first_tile, end_tile;
  std::int64_t first_pixel, pixels;
  std::int64_t first_column, columns;  // of the input, inside the image
};

/// Elements between neighbouring rows and between neighbouring pixels.
struct ImageSteps {
  std::int64_t row, pixel;
};

struct DepthwiseBlocking {
  /// As the loops compute it. Pointwise pixels are cut into rows of a suitable length. If windows have one column, rows
  /// and columns change places, so that the taps of a window are neighbours along a tile's axis.
  Conv2dProblem problem;
  ImageSteps x_steps, y_steps;  // of the problem above
  bool stages_input;            // tiles read f32 rows in the workspace, else the image
  bool copies_input;            // tiles read rows in the workspace that are as in the image, but for the distance of
                                // their pixels: in the image these share too few sets of L1
  bool stores_rows;             // tiles write f32 rows in the workspace, else y
  bool reaches;                 // fewer channels than lanes: where they may, vectors reach into the next pixels of the
                                // image and of y, and these rows are neither staged nor stored from the workspace
  DType tile_type;              // what tiles read and write
  std::int64_t row_tile_outputs;  // of the row tiles for the rows that read no padding rows; 0: there are none
  bool prefetches;                // the tensors exceed half of L3: tiles prefetch the next row's input, if not copied
  std::int64_t unit_rows, row_blocks;
  std::int64_t unit_blocks;  // of channels, in a unit
  std::vector<ChannelSection> sections;
  std::vector<ChannelBlock> channel_blocks;
  std::vector<AxisTile> tiles;
  std::vector<Positions> positions;
  std::vector<PixelBlock> pixel_blocks;
  // A thread's workspace, in floats: input rows, then a row of results. Staged rows are a ring; copied rows follow one
  // another, since row tiles read several.
  std::int64_t ring_rows, row_floats, result_floats;
  std::int64_t copied_pixel;  // elements between the pixels of copied rows

  std::int64_t units() const {
    return problem.n * row_blocks * (static_cast<std::int64_t>(channel_blocks.size()) / unit_blocks);
  }
  std::int64_t thread_floats() const { return ring_rows * row_floats + result_floats; }
};

/// The widths of vectors for these channels, window, type, target and activation.
std::vector<ChannelSection> choose_sections(const Conv2dProblem& problem, const Target& target);

/// The sizes of the blocking's tables, counted without making them: exact for one thread, an upper bound for several.
std::int64_t depthwise_table_pieces(const Conv2dProblem& problem, const Target& target);

DepthwiseBlocking choose_depthwise_blocking(const Conv2dProblem& problem, const Target& target, int threads);

}  // namespace gable::cpu
