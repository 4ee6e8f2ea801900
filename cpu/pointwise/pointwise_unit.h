// The loops over one unit of PointwisePlan: a block of pixels and output lanes.
#pragma once

#include <cstdint>

#include "cpu/pointwise/pointwise_blocking.h"

namespace gable::cpu {

/// What the units of one run share.
struct PointwiseRun {
  const Conv2dProblem& problem;              // of a group
  std::int64_t pixel_inputs, pixel_outputs;  // channels of all groups
  const PointwiseKernels& kernels;
  const PointwiseBlocking& blocking;
  // Of the group.
  const void* x;
  const float* packed;
  const float* bias;  // whole vectors, never null
  void* y;
  bool non_temporal;  // stores of y
};

/// Unit `index` of a group's pixel_blocks * lane_blocks. `strip` has room for a band's pixels where the input is
/// copied.
void compute_pointwise_unit(const PointwiseRun& run, std::int64_t index, float* strip);

}  // namespace gable::cpu
