// Depthwise convolution of any window, stride, dilation, channel multiplier and layout. A thread computes `columns`
// outputs of a row, of one, two or four channels, straight from global memory: the caches serve what neighbours share.
// Rows and columns may change places (a turned image), so that the outputs of a thread lie along the longer side of
// the window and share inputs.
#pragma once

#include <cstdint>

#include <gable/problem.h>

#include "cuda/common/parameters.h"

namespace gable::cuda {

struct DepthwiseAnyExtents {
  int k, multiplier, h, w, ho, wo;  // multiplier: output channels of an input channel
};

/// Elements from one image, channel, row and pixel of a row to the next.
struct DepthwiseAnyPitches {
  std::int64_t image, channel, row, pixel;
};

/// How the outputs are dealt to threads.
struct DepthwiseAnyCut {
  int step_w;         // between the columns of a thread, in the output
  int vectors;        // of channels
  int column_groups;  // of every step_w-th column
  std::int64_t threads;
};

struct DepthwiseAny {
  Tensors tensors;  // packed: [tap][output channel]
  DepthwiseAnyExtents extents;
  Window window;
  DepthwiseAnyPitches in, out;
  std::int64_t weight_row, weight_tap;  // from one row of taps, and from one tap of a row, to the next
  DepthwiseAnyCut cut;
  bool nhwc, turned;
  Activation activation;
};

using DepthwiseAnyKernel = void (*)(DepthwiseAny);

struct DepthwiseAnyVariant {
  int lanes, columns;
  bool slides;  // the stride along the row is 1: a thread's columns are a dilation apart and share inputs
  DepthwiseAnyKernel kernel;
};

/// `lanes`: 1, or in nhwc without a multiplier 2 or 4 if they divide the channels. `half`: half as many columns, so
/// that there are twice as many threads.
DepthwiseAnyVariant depthwise_any_variant(DType dtype, int lanes, bool slides, bool half);

inline constexpr int kDepthwiseAnyThreads = 128;

}  // namespace gable::cuda
