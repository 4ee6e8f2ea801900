// 1×1 convolution of f32 NHWC images, strides included, and with it the f32 matrix product: a loop nest of its own,
// because the sum of a single tap is too short for Conv2dPlan's. What it refuses is Conv2dPlan's.
//   tile    up to 14 pixels x 2 vectors of output lanes, or 6 x 4, summed over all input channels in registers
//   panel   a tile's lanes; its packed weights are one stream
//   group   tiles that pass under one panel before the next panel comes
//   unit    a block of pixels and lanes; spread over threads
#pragma once

#include <cstddef>
#include <string>

#include "cpu/common/aligned.h"
#include "cpu/direct/conv2d.h"
#include "cpu/pointwise/pointwise_kernels.h"

namespace gable::cpu {

struct PointwiseBlocking {
  std::int64_t pixels;      // of the output, all images
  std::int64_t row_pixels;  // those that lie at equal distances in the input: of a row, or all
  bool staged;              // input pixels are copied into a strip, a group at a time
  bool panels_outside;      // weights that L2 can't keep come once a group; else a group is one tile
  bool streams;             // stores pass the caches by, where y is aligned to vectors
  std::int64_t vectors, tile_pixels;
  std::int64_t strip_pixel;  // floats from pixel to pixel of a strip
  std::int64_t group_pixels, unit_pixels, unit_lanes, pixel_blocks, lane_blocks;
};

/// Why PointwisePlan is not made for the problem; empty if it is.
std::string pointwise_refusal(const Conv2dProblem& problem, const Target& target);

class PointwisePlan {
 public:
  /// Throws std::invalid_argument with the refusal.
  PointwisePlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;

  /// Weights to [panel][channel][lane].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// As Conv2dPlan's.
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  std::int64_t padded_lanes() const;
  std::size_t strip_floats() const;

  Conv2dProblem problem_;
  const Target* target_;
  const PointwiseKernels* kernels_;
  int threads_;
  PointwiseBlocking blocking_;
  AlignedFloats workspace_;  // the bias in whole vectors, and a strip a thread
};

}  // namespace gable::cpu
