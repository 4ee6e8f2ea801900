// The contract between FewChannelsPlan and its per-target kernels. A unit of work (image, block of output rows) goes
// through stage, then one of two kinds of register tile:
//   lanes  a vector is output channels; inputs are broadcast. Sums: rows x pixels x vectors.
//   wide   a vector is pixels of a row; weights are broadcast. Sums: rows x channels.
// Both read the same planar strip [row][channel][phase][column], where a phase holds every stride-th column: the pixels
// of a tap are neighbours whatever the stride, the layout and the number of channels.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/target.h"
#include "cpu/types.h"

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

/// Step i of a tap and channel reads strip x[row*x_row + pixel + offsets[i]].
struct FewTileCall {
  const float* x;
  std::int64_t x_row;
  const std::int32_t* offsets;
  std::int64_t steps;
  std::int64_t run;      // this many steps at a time are taps on consecutive pixels; divides steps
  const float* weights;  // lanes: [step][vectors x lanes]; wide: [block of channels][step][channel]
  const float* bias;     // lanes: whole vectors; wide: a float a channel
};

struct FewLanesCall {
  FewTileCall tile;
  float* y;  // pixel stride y_px; the first `valid` lanes of a pixel are stored
  std::int64_t y_px;
  int valid;
  Activation activation;
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
