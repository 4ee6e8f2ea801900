// The contract between PointwisePlan and its per-target kernel: a register tile of pixels through panels of output
// lanes.
#pragma once

#include <array>
#include <cstdint>

#include <gable/problem.h>

#include "cpu/common/target.h"

namespace gable::cpu {

/// Input channels that a tile takes at a time: one cache line of each pixel.
constexpr std::int64_t kPointwiseRun = 16;
constexpr int kMaxPointwisePixels = 14;
constexpr int kMaxPointwiseVectors = 8;
/// A panel of packed weights has two vectors of lanes, [channel][lane]. The remaining lanes of a problem are a panel of
/// two vectors, one, half of one, or two panels of one and of half a vector, whichever needs the least padding.
constexpr int kPanelVectors = 2;
/// A tile may take a panel of two vectors and one of a single vector together.
constexpr int kThreeVectors = 3;
/// The index of half a vector among numbers of vectors.
constexpr int kHalfVector = 0;
constexpr int kOneVector = 1;
/// Pixels of a tile that keeps weights in registers, and the most weights.
constexpr std::int64_t kHeldPixels = 8, kMostHeldWeights = 24;

/// Cache lines that later tiles read, which this tile prefetches: `lines` of them, line_step floats apart, before each
/// run of channels. The first one is `from`; it moves on by run_step after each run and by panel_step after each panel.
struct PrefetchLines {
  const float* from;
  std::int64_t lines, line_step, run_step, panel_step;
};

/// Channel c of pixel p is x[p * pixel + c].
struct PointwiseInput {
  const float* x;
  std::int64_t pixel, channels;
};

/// Packed panels of the tile's vectors, one after the other.
struct PointwisePanels {
  const float* weights;
  std::int64_t count;
};

/// Pixel p's lanes begin `pixel` elements after those of pixel p - 1.
struct PointwiseOutput {
  const float* bias;  // whole vectors
  void* y;            // of `type`
  DType type;
  std::int64_t pixel;
  int lanes;          // valid ones of the last panel
  float least;        // 0 for relu, or minus infinity
  bool non_temporal;  // stores: all lanes are valid, and y is aligned to vectors
};

/// A register tile of pixels x vectors of output lanes, which goes through all panels.
struct PointwiseCall {
  PointwiseInput in;
  PointwisePanels panels;
  PointwiseOutput out;
  PrefetchLines prefetch;
  std::int64_t tiles;  // consecutive ones of equal width, for run_of_tiles
};
using PointwiseFunction = void (*)(const PointwiseCall&);

/// Pixels whose channels become f32: of f16 or bf16, x_pixel elements apart, to a strip. Less than a vector behind the
/// last pixel's channels is overwritten too.
struct WidenPixelsCall {
  const void* x;
  std::int64_t x_pixel, channels, pixels;
  float* strip;
  std::int64_t strip_pixel;
};
using WidenPixelsFunction = void (*)(const WidenPixelsCall&);

struct PointwiseKernels {
  int lanes;        // of a vector
  int least_lanes;  // of a panel: of half a vector where most_pixels[kHalfVector] is not 0
  /// Indexed [vectors][pixels], up to most_pixels[vectors]; vectors are 1, 2 and 8, and 3 or 4 where their most_pixels
  /// are not 0.
  std::array<int, kMaxPointwiseVectors + 1> most_pixels;
  PointwiseFunction tile[kMaxPointwiseVectors + 1][kMaxPointwisePixels + 1];
  /// The same, tile after tile, for one panel of at most most_run_vectors. They prefetch nothing: a panel of so few
  /// products has no time for it, and reads and writes its pixels once, in order.
  PointwiseFunction run_of_tiles[kThreeVectors + 1][kMaxPointwisePixels + 1];
  int most_run_vectors;
  /// The same for one vector, with tiles of kHeldPixels pixels and the weights of some channels in registers; or null.
  PointwiseFunction held_weights;
  WidenPixelsFunction widen_f16, widen_bf16;
};

/// Lanes of the packed panel that begins with `lanes` output channels left.
constexpr std::int64_t packed_panel_lanes(const PointwiseKernels& kernels, std::int64_t lanes) {
  const std::int64_t whole = kPanelVectors * kernels.lanes;
  if (lanes > whole - kernels.least_lanes) return whole;
  return lanes > kernels.lanes - kernels.least_lanes ? kernels.lanes : kernels.least_lanes;
}

const PointwiseKernels& pointwise_kernels(const Target& target);

}  // namespace gable::cpu
