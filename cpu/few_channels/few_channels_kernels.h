// The contract between FewChannelsPlan and its per-target kernels. A unit of work (image, block of output rows) first
// fills its strip, input rows as f32 with their padding, then computes register tiles of one of two kinds:
//   channel lanes  a vector is output channels; inputs are broadcast. Accumulators: rows x pixels x vectors.
//   pixel lanes    a vector is pixels of a row; weights are broadcast. Accumulators: rows x channels.
// The strip has one of two orders:
//   planes  [row][channel][phase][column], where a phase holds every stride-th column: the pixels that a tap reads are
//           neighbours, whatever the stride, the layout and the number of channels. Pixel lanes need it, and so do
//           taps that share broadcasts.
//   copy    the image's own order, [row][column][channel] or [row][channel][column]: the cheapest to fill.
#pragma once

#include <array>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

constexpr int kFewMaxPixels = 28;
constexpr int kFewMaxVectors = 2;
constexpr int kFewMaxPixelLanesChannels = 8;  // output channels; the cost of interleaving them is quadratic
constexpr int kFewPixelLanesBlock = 6;        // output channels of one tile of pixel lanes

/// The image that a strip is filled from; strides in elements. Where a strip row holds all channels of its pixels, as
/// an NHWC row does, width counts elements and channels is 1.
struct FewImage {
  const void* data;
  std::int64_t row_stride, channel_stride;
  std::int64_t height, width, channels;
};

struct FewStripCall {
  FewImage image;
  std::int64_t first_row, rows;  // of the image; rows outside the image are padding
  std::int64_t pad_left, phases;
  std::int64_t columns, pitch;  // of a phase: columns that are read, and the distance to the next phase
  float* strip;
  float* row;  // scratch for one image row as f32
};

/// What a tile multiplies. A step is one tap of one channel; step i of run r reads
/// strip x[row*x_row + pixel*x_px + offsets[r] + i].
struct FewTileCall {
  const float* x;
  std::int64_t x_row, x_px;  // pixel lanes: x_px is 1
  const std::int32_t* offsets;
  std::int64_t runs, run_steps;  // pixel lanes: runs of one step
  const float* weights;          // channel lanes: [step][vectors x lanes]; pixel lanes: [block][step][channel]
  const float* bias;             // channel lanes: whole vectors; pixel lanes: a float a channel
};

struct FewChannelLanesCall {
  FewTileCall tile;
  void* y;  // of y_type; pixel stride y_px; the first `valid` lanes of a pixel are stored
  DType y_type;
  std::int64_t y_px;
  int valid;
  Activation activation;
  bool non_temporal;             // non-temporal stores of whole aligned vectors of f32
  std::int64_t prefetch_pixels;  // output pixels of the next tile that each run prefetches
};
using FewChannelLanesFunction = void (*)(const FewChannelLanesCall&);

/// Output channels of the next tile of pixel lanes where `left` are left: nearly equal tiles.
constexpr std::int64_t next_block_channels(std::int64_t left) { return left / ceil_div(left, kFewPixelLanesBlock); }

/// pixel_lanes_rows rows of the convolution, all their pixels and channels; 2x2-pooled or not.
struct FewPixelLanesCall {
  FewTileCall tile;
  std::int64_t channels, pixels;  // of the convolution
  float* planes;                  // [output row][channel][pitch]
  std::int64_t pitch;
};

/// planes[channel][pitch] -> y[pixel][channel]; writes up to a vector beyond.
struct FewInterleaveCall {
  const float* planes;
  std::int64_t pitch, channels, pixels;
  float* y;
  const std::int32_t *pixel_of, *channel_of;  // of the first channels x lanes values of y
};

/// y[i] = activation(x[i]) in the storage type.
struct FewFinishCall {
  const float* x;
  void* y;
  std::int64_t count;
  Activation activation;
};

struct FewChannelsKernels {
  int lanes, pixel_lanes_rows;
  bool shares_taps;  // tiles of one vector use a broadcast input for all taps of a kernel row that read it
  std::array<int, kFewMaxVectors + 1> max_pixels, max_pair_pixels;  // by vectors; pairs are even
  int max_neighbours;  // the same of one row of one vector, if pixels are neighbours: their taps may share broadcasts
  /// Channel lanes, indexed [vectors][pixels]: one row of pixels, or a pair of rows under a 2x2 pool.
  FewChannelLanesFunction row[kFewMaxVectors + 1][kFewMaxPixels + 1];
  FewChannelLanesFunction row_pair[kFewMaxVectors + 1][kFewMaxPixels + 1];
  void (*pixel_lanes)(const FewPixelLanesCall&);
  void (*pixel_lanes_pool)(const FewPixelLanesCall&);
  void (*interleave)(const FewInterleaveCall&);
  /// Indexed by DType. `split` takes the interleaved channels of a row apart; `rows` takes a row as it is, of one
  /// channel or of all.
  std::array<void (*)(const FewStripCall&), 3> fill_strip_split, fill_strip_rows;
  std::array<void (*)(const FewFinishCall&), 3> finish;
};

const FewChannelsKernels& few_channels_kernels(const Target& target);

}  // namespace gable::cpu
