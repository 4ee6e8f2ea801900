// The contract between DepthwisePlan and its per-target kernels: one or two output rows a call.
#pragma once

#include <array>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/check.h"
#include "cpu/common/target.h"

namespace gable::cpu {

constexpr int kDepthwiseTaps = 3;  // a side of the kernel
constexpr int kDepthwiseRows = 2;  // output rows of a pair
constexpr int kMaxDepthwiseInputRows = 5;

/// Output row i, pixel p, tap (kh, kw) reads rows[i*stride + kh] at pixel p*stride + kw - left. Only the first and the
/// last of those columns may lie outside the image, and only by one.
struct DepthwiseCall {
  std::array<const void*, kMaxDepthwiseInputRows> rows;
  std::array<void*, kDepthwiseRows> y;
  const float* weights;  // [group][tap][lane]
  const float* bias;     // [group][lane]
  std::int64_t channels, pixels;
  std::int64_t block_channels;  // whole groups
  int left;                     // columns of padding left of the image: 0 or 1
  bool right_outside;           // whether the last tap of the last pixel is padding
  std::int64_t prefetch_bytes;  // from an input row to the row that the next pair reads in its place
  bool relu;
  bool non_temporal;  // stores of y: whole aligned vectors of f32
};
using DepthwiseFunction = void (*)(const DepthwiseCall&);

/// Channels are computed in groups: of one vector, or of two of bf16 (`pairs`), where the first vector has the even
/// channels and the second the odd ones, since two neighbours share 32 bits and each is one operation away from f32.
/// Where groups do not divide the channels, the last one overlaps the one before it.
struct DepthwiseKernels {
  int lanes;   ///< of a vector
  int pixels;  ///< of a tile; rows of at most so many are computed pixel by pixel
  /// Indexed [Type][stride - 1][output rows - 1].
  DepthwiseFunction rows[3][2][kDepthwiseRows];
  DepthwiseFunction pairs[2][kDepthwiseRows];
};

const DepthwiseKernels& depthwise_kernels(const Target& target);

}  // namespace gable::cpu
