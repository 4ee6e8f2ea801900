// How a depthwise convolution in NHWC is cut into strips, and the kernels that compute them. A thread goes down a strip
// of rows and computes `columns` neighbouring outputs of a pair of channels in each. A block takes up to 32 pairs of
// channels, and with its other threads further positions of the same channels. A convolution with dilation d and no
// stride is d x d convolutions without dilation, each of every d-th pixel: a strip's pixels then lie d apart.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include <gable/problem.h>

#include "cuda/common/coverage.h"
#include "cuda/common/parameters.h"

namespace gable::cuda {

inline constexpr int kDepthwiseThreads = 128;
inline constexpr int kDepthwisePairs = 32;  // of channels a block, at most

/// Extents in elements.
struct DepthwiseStrips {
  Tensors tensors;  // packed: [tap][channel]
  int c, h, w, ho, wo, pad_top, pad_left;
  int step_h, step_w;               // between the pixels of a strip: the dilation
  int block_pairs, channel_blocks;  // pairs of channels a block, and how many such blocks make all channels
  int column_groups;                // of one phase of the dilation
  int strips, rows;                 // of one phase; rows of the output a strip
  int positions;                    // (image, row phase, strip, column phase, column group), the last fastest
  Activation activation;
};

using DepthwiseStripsKernel = void (*)(DepthwiseStrips);

/// A compiled kernel: `window` x `window` taps, strides alike.
struct DepthwiseStripsVariant {
  int window, stride, columns;
  int blocks;        // of 128 threads, for which registers suffice on one multiprocessor
  int shared_bytes;  // of a block
  Path path;
  DepthwiseStripsKernel kernel;
};

std::span<const DepthwiseStripsVariant> depthwise_strips_variants(DType dtype);

}  // namespace gable::cuda
