// Depthwise convolution of any window, stride, dilation, channel multiplier and layout. A thread computes `columns`
// outputs of a row, of one or two channels, straight from global memory: the caches serve what neighbours share.
#pragma once

#include <cstdint>

#include <gable/problem.h>

#include "cuda/common/parameters.h"

namespace gable::cuda {

struct DepthwiseAnyExtents {
  int c, k, multiplier, h, w, ho, wo;  // multiplier: output channels of an input channel
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
  DepthwiseAnyCut cut;
  bool nhwc;
  Activation activation;
};

using DepthwiseAnyKernel = void (*)(DepthwiseAny);

struct DepthwiseAnyVariant {
  int lanes, columns;
  bool slides;  // the horizontal stride is 1: a thread's columns are a dilation apart and share inputs
  DepthwiseAnyKernel kernel;
};

/// `lanes`: 1, or in nhwc with an even number of channels and no multiplier 2.
DepthwiseAnyVariant depthwise_any_variant(DType dtype, int lanes, bool slides);

inline constexpr int kDepthwiseAnyThreads = 128;

}  // namespace gable::cuda
