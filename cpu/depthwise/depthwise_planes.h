// Depthwise convolution of NCHW images: any window, stride, dilation, padding and number of outputs an input channel.
// NHWC images whose channels do not fill vectors are taken as well, as one plane: the lanes of a vector are then all
// channels of neighbouring pixels, and neighbouring taps lie as many elements apart as there are channels.
// Lanes are neighbouring pixels of a row and tiles go down a column, so that each vector that is loaded serves the taps
// of one column of the kernel. Rows are staged as f32 with their padding, unless they can be read in place. Short rows
// would leave lanes unused. For small images, as many planes as a vector has lanes are therefore transposed, and lanes
// are channels.
#pragma once

#include <cstddef>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/depthwise/depthwise_planes_blocking.h"

namespace gable::cpu {

/// How long a run will last (estimate.h). Precondition: depthwise_planes_refusal() is empty.
double depthwise_planes_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class DepthwisePlanesPlan {
 public:
  /// Precondition: depthwise_planes_refusal() is empty. Throws what checked() in check.h throws.
  DepthwisePlanesPlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;

  /// What pack()'s result depends on; not on images, epilogue or threads.
  Packing packing() const;
  /// Weights of the problem's type to f32 [channel][column][row]; of NHWC to [phase][column][row][lane].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  struct Run;
  class Unit;

  std::int64_t folded_lanes() const;  // lanes of NHWC that have weights of their own; 0 in NCHW

  Conv2dProblem problem_;
  const Target* target_;
  int threads_;
  PlanesBlocking blocking_;
  AlignedFloats workspace_;  // a part for each thread; the padding of rows, where nothing is staged, stays zero
};

}  // namespace gable::cpu
