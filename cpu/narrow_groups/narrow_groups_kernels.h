// The contract between NarrowGroupsPlan and its per-target kernels: how a strip is filled, and the register tile that
// reads it.
#pragma once

#include <gable/problem.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cpu/common/target.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {

constexpr int kMaxNarrowGroupsPixels = 14;
constexpr int kMaxQuadsPixels = 14;
/// A vector of weights has kQuad input channels for each of kQuad output channels (quads-inl.h).
constexpr int kQuad = 4, kQuadLanes = kQuad * kQuad;
/// With fewer quads of input channels in a group, spread vectors are faster.
constexpr int kLeastQuads = 2;
constexpr std::int64_t kMaxNarrowGroupsRows = 16;  // of the kernel
/// A block's input channels fill at most this many vectors.
constexpr std::int64_t kMaxSpreadVectors = 4;

/// One row of the image becomes one row of the strip: for each column, `steps` vectors. Lane l of vector i is channel
/// source[i * lanes + l] of the pixel, or i * lanes + l where there is no `source`. Columns outside the image become
/// zeros.
struct SpreadCall {
  const void* x;  // column 0 of the row, first channel of the block
  std::int64_t x_pixel, width;
  std::int64_t first_column, columns;  // of the strip, in coordinates of the image
  std::int64_t steps;
  std::int64_t channels;       // that may be read
  std::int64_t next_row;       // elements to the row that is spread next, which is prefetched
  const std::int32_t* source;  // [steps][lanes], or null
  float* strip;
};
using SpreadFunction = void (*)(const SpreadCall&);

/// One register tile: pixels of one row × one vector of output channels. `rows[kh]` is the tile's first pixel under tap
/// (kh, 0). A kernel row has `runs` runs of `steps` vectors, x_run floats apart; weights are one stream. With quads,
/// each group has runs of `steps` quads and its own stream of weights within a kernel row.
struct NarrowGroupsCall {
  const float* const* rows;
  std::int64_t first_row, end_row;  // kernel rows that read the image
  std::int64_t x_pixel, x_run, runs, steps;
  const float* weights;      // of kernel row first_row
  std::int64_t weights_row;  // floats of a kernel row
  const float* bias;         // one vector; with quads four lanes of each output
  void* y;
  DType y_type;
  std::int64_t y_pixel;  // elements
  int valid;             // lanes
  float least;           // 0 for relu, or minus infinity
};
using NarrowGroupsFunction = void (*)(const NarrowGroupsCall&);

struct NarrowGroupsKernels {
  int lanes;  // of a vector
  int max_pixels;
  bool pairs;                            // of bf16: an element of strip and weights is a pair of channels
  bool quads;                            // the strip holds channels as they lie, and loads take four of a group
  std::array<SpreadFunction, 3> spread;  // indexed by DType
  NarrowGroupsFunction tile[kMaxNarrowGroupsPixels + 1];  // indexed by pixels
};

const NarrowGroupsKernels& narrow_groups_kernels(const Target& target);
/// The fastest ones for the problem's groups: quads where the target has them for such groups.
const NarrowGroupsKernels& narrow_groups_kernels(const Target& target, const Conv2dProblem& p);

/// Whether groups of these inputs and outputs take quads of pairs.
constexpr bool has_pair_quads(std::int64_t group_c, std::int64_t group_k) {
  const std::int64_t quads = group_c % (2 * kQuad) == 0 ? group_c / (2 * kQuad) : 0;
  return group_k == kQuad ? quads >= kLeastQuads : quads > 0 && (group_k == 2 * kQuad || group_k == 4 * kQuad);
}

/// The kernels of AVX512-BF16 for the target avx512, and why this CPU lacks them, or empty.
const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target);
const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target, const Conv2dProblem& p);
std::string missing_narrow_groups_dot();

/// Products of an output at a tap: the input channels of a group, or pairs of them.
inline std::int64_t narrow_groups_steps(const Conv2dProblem& p, const NarrowGroupsKernels& kernels) {
  return kernels.pairs ? p.group_c() / 2 : p.group_c();
}

/// The groups of a block: those whose outputs fill a vector, or with quads of pairs also those whose inputs do.
inline std::int64_t narrow_groups_of_block(const Conv2dProblem& p, const NarrowGroupsKernels& kernels) {
  const std::int64_t by_outputs = kernels.lanes / p.group_k();
  if (!kernels.pairs || !kernels.quads) return by_outputs;
  return std::max(by_outputs, kernels.lanes / narrow_groups_steps(p, kernels));
}

/// Vectors of a pixel of the strip.
inline std::int64_t narrow_groups_pixel_vectors(const Conv2dProblem& p, const NarrowGroupsKernels& kernels) {
  const std::int64_t steps = narrow_groups_steps(p, kernels);
  return kernels.quads ? ceil_div(narrow_groups_of_block(p, kernels) * steps, std::int64_t{kernels.lanes}) : steps;
}

}  // namespace gable::cpu
