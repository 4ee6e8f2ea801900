// 1×1 convolution of f32 NHWC images, with any stride and in groups, and the f32 matrix product. Sums over a single tap
// are too short for Conv2dPlan's loop nest, so this one has its own. Conv2dPlan takes the problems that PointwisePlan
// refuses.
//   blocking  tiles, groups, units and strips, and why      unit  the loops over one unit      kernels  the tile
#pragma once

#include <cstddef>
#include <string>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/common/parallel.h"
#include "cpu/pointwise/pointwise_blocking.h"

namespace gable::cpu {

/// Why PointwisePlan is not made for the problem; empty if it is.
std::string pointwise_refusal(const Conv2dProblem& problem, const Target& target);

/// How long a run will last (estimate.h). Precondition: pointwise_refusal() is empty.
double pointwise_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class PointwisePlan {
 public:
  /// Precondition: pointwise_refusal() is empty. Throws what checked() in check.h throws.
  PointwisePlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;
  Packing packing() const;

  /// Weights to [group][panel][channel][lane].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  std::int64_t padded_lanes() const;  // of a group
  std::int64_t group_weights() const { return padded_lanes() * group_.c; }
  std::int64_t units_of_group() const { return blocking_.units.pixel_blocks * blocking_.units.lane_blocks; }
  std::int64_t units() const { return units_of_group() * problem_.groups; }
  std::size_t strip_floats() const;

  Conv2dProblem problem_, group_;
  const Target* target_;
  const PointwiseKernels* kernels_;
  int threads_;
  PointwiseBlocking blocking_;
  AlignedFloats workspace_;  // the bias of each group in whole vectors, and a strip a thread
  RunTimes run_times_;
};

}  // namespace gable::cpu
