// The contract between FewChannelsPlan and its per-target kernels. A unit of work (image, block of output rows) goes
// through stage, then one of two kinds of register tile:
//   lanes  a vector is output channels; inputs are broadcast. Sums: rows x pixels x vectors.
//   wide   a vector is pixels of a row; weights are broadcast. Sums: rows x channels.
// They read a strip of input rows with their padding, in one of two orders:
//   planes  [row][channel][phase][column], where a phase holds every stride-th column: a tap's pixels are neighbours
//           whatever stride, layout and number of channels. For wide, and for taps that share broadcasts.
//   copy    the image's own order, [row][column][channel] or [row][channel][column]: the cheapest to make.
#pragma once

#include <array>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

constexpr int kFewMaxPixels = 14;
constexpr int kFewMaxVectors = 2;
constexpr int kFewMaxWideChannels = 8;  // interleaving costs their square
constexpr int kFewWideBlock = 6;        // channels of one wide tile

struct FewStageCall {
  const void* x;                        // the image
  std::int64_t x_row, x_px, x_channel;  // element strides
  std::int64_t height, width, channels;
  std::int64_t first_row, rows;  // source row of the strip's first; may be padding
  std::int64_t pad_left, phases;
  std::int64_t columns, pitch;  // of a phase: those that are read, and the distance to the next phase
  float* strip;
  float* row;  // an f32 row of the image
};

/// Step i of run r reads strip x[row*x_row + pixel*x_px + offsets[r] + i]; a step is one tap of one channel.
struct FewTileCall {
  const float* x;
  std::int64_t x_row, x_px;  // wide: x_px is 1
  const std::int32_t* offsets;
  std::int64_t runs, run;  // run: the steps of one; wide: 1
  const float* weights;    // lanes: [step][vectors x lanes]; wide: [block of channels][step][channel]
  const float* bias;       // lanes: whole vectors; wide: a float a channel
};

struct FewLanesCall {
  FewTileCall tile;
  float* y;  // pixel stride y_px; the first `valid` lanes of a pixel are stored
  std::int64_t y_px;
  int valid;
  Activation activation;
  bool stream;              // y is written past the caches: whole aligned vectors
  std::int64_t ask_pixels;  // of the next tile, whose lines are asked for during each run
};
using FewLanesFunction = void (*)(const FewLanesCall&);

/// A block of wide_rows rows of the convolution, all its pixels and channels; 2x2-pooled or not.
struct FewWideCall {
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
  int lanes, wide_rows;
  std::array<int, kFewMaxVectors + 1> max_pixels, max_pair_pixels;  // by vectors; pairs are even
  FewLanesFunction tile[kFewMaxVectors + 1][kFewMaxPixels + 1];
  FewLanesFunction pair[kFewMaxVectors + 1][kFewMaxPixels + 1];
  void (*wide)(const FewWideCall&);
  void (*wide_pool)(const FewWideCall&);
  void (*interleave)(const FewInterleaveCall&);
  /// Indexed by Type.
  std::array<void (*)(const FewStageCall&), 3> stage_nhwc, stage_nchw;
  std::array<void (*)(const FewFinishCall&), 3> finish;
};

const FewChannelsKernels& few_channels_kernels(const Target& target);

}  // namespace gable::cpu
