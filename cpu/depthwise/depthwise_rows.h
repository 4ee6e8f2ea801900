// Rows of stored pixels to f32 rows that register tiles read, and f32 results to stored pixels: for types of 16 bits,
// for channel multipliers and for fewer channels than a vector has lanes. Compiled once a target.
#pragma once

#include <gable/problem.h>

#include <cstdint>

#include "cpu/common/target.h"

namespace gable::cpu {

/// The channels of a pixel as vectors: vector i starts at channel min(i * lanes, last). Fewer channels than lanes make
/// one vector, whose remaining lanes are zero.
struct PixelVectors {
  std::int64_t vectors, last, channels;
};

struct WidenCall {
  const void* x;        // the first channel of the first pixel
  std::int64_t x_step;  // elements between pixels
  float* row;
  std::int64_t row_step;  // floats between pixels
  std::int64_t pixels;
  PixelVectors lanes;
  std::int64_t multiplier;      // output channels an input channel
  std::int64_t first_of_input;  // which of its input channel's outputs the first channel is
};

struct NarrowCall {
  const float* row;
  std::int64_t row_step;
  void* y;
  std::int64_t y_step;
  std::int64_t pixels;
  PixelVectors lanes;
  bool tanh;
};

/// Steps and a pixel's bytes.
struct CopyCall {
  const char* x;
  std::int64_t x_step;
  char* row;
  std::int64_t row_step;
  std::int64_t pixels, bytes;
};

/// Indexed by DType.
struct RowKernels {
  void (*widen[3])(const WidenCall&);
  void (*widen_multiplied[3])(const WidenCall&);
  void (*narrow[3])(const NarrowCall&);
  void (*copy)(const CopyCall&);
};
const RowKernels& depthwise_row_kernels(const Target& target);

}  // namespace gable::cpu
