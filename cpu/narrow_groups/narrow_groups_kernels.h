// The contract between NarrowGroupsPlan and its per-target kernels: how a strip is filled, and the register tile that
// reads it.
#pragma once

#include <gable/problem.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cpu/common/target.h"

namespace gable::cpu {

constexpr int kMaxNarrowGroupsPixels = 14;
constexpr std::int64_t kMaxNarrowGroupsRows = 16;  // of the kernel
/// A block's input channels fill at most this many vectors.
constexpr std::int64_t kMaxSpreadVectors = 4;

/// One row of the image becomes one row of the strip: for each column, `steps` vectors. Lane l of vector i is channel
/// source[i * lanes + l] of the pixel. Columns outside the image become zeros.
struct SpreadCall {
  const void* x;  // column 0 of the row, first channel of the block
  std::int64_t x_pixel, width;
  std::int64_t first_column, columns;  // of the strip, in coordinates of the image
  std::int64_t steps;
  std::int64_t channels;       // that may be read
  std::int64_t next_row;       // elements to the row that is spread next, which is prefetched
  const std::int32_t* source;  // [steps][lanes]
  float* strip;
};
using SpreadFunction = void (*)(const SpreadCall&);

/// One register tile: pixels of one row × one vector of output channels. `rows[kh]` is the tile's first pixel under tap
/// (kh, 0). A kernel row has `runs` runs of `steps` vectors, x_run floats apart; weights are one stream.
struct NarrowGroupsCall {
  const float* const* rows;
  std::int64_t first_row, end_row;  // kernel rows that read the image
  std::int64_t x_pixel, x_run, runs, steps;
  const float* weights;  // of kernel row first_row
  const float* bias;     // one vector
  float* y;
  std::int64_t y_pixel;
  int valid;    // lanes
  float least;  // 0 for relu, or minus infinity
};
using NarrowGroupsFunction = void (*)(const NarrowGroupsCall&);

/// The results of a tile, [pixel][lane], that are stored in 16 bits.
struct NarrowingCall {
  const float* results;
  int pixels, valid;  // lanes
  void* y;
  std::int64_t y_pixel;
};
using NarrowingFunction = void (*)(const NarrowingCall&);

struct NarrowGroupsKernels {
  int lanes;  // of a vector
  int max_pixels;
  bool pairs;  // of bf16: an element of strip and weights is a pair of channels, and tiles store bf16 themselves
  std::array<SpreadFunction, 3> spread;                   // indexed by DType
  NarrowGroupsFunction tile[kMaxNarrowGroupsPixels + 1];  // indexed by pixels
  NarrowingFunction narrow_f16, narrow_bf16;
};

const NarrowGroupsKernels& narrow_groups_kernels(const Target& target);

/// The kernels of AVX512-BF16 for the target avx512, and why this CPU lacks them, or empty.
const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target);
std::string missing_narrow_groups_dot();

/// Elements of the strip for a tap: the input channels of a group, or pairs of them.
inline std::int64_t narrow_groups_steps(const Conv2dProblem& p, const NarrowGroupsKernels& kernels) {
  return kernels.pairs ? p.group_c() / 2 : p.group_c();
}

}  // namespace gable::cpu
