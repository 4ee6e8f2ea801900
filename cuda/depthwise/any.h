// Depthwise convolution of any window, stride, dilation, channel multiplier and layout. A thread computes `columns`
// outputs of a row, of one or two channels, straight from global memory: the caches serve what neighbours share.
#pragma once

#include <cstdint>

#include <gable/problem.h>

namespace gable::cuda {

/// Extents in elements; `x`, `packed`, `bias` and `y` are the call's.
struct DepthwiseAny {
  const void* x;
  const void* packed;  // [tap][output channel]
  const float* bias;
  void* y;
  int c, k, multiplier, h, w, ho, wo, r, s, pad_top, pad_left;
  int stride_h, stride_w, dilation_h, dilation_w;
  int step_w;         // between the columns of a thread, in the output
  int vectors;        // of channels
  int column_groups;  // of every step_w-th column
  std::int64_t threads;
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
