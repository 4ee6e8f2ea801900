// Depthwise convolution of any window, type, layout and epilogue: lanes are channels, and input that a register tile
// cannot read in place is staged (strips.h). Without a pool, the kernels of depthwise.h and depthwise_planes.h are
// faster.
#pragma once

#include <gable/problem.h>

#include <cstddef>
#include <string>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/common/target.h"
#include "cpu/depthwise/depthwise_staged_blocking.h"
#include "cpu/depthwise/depthwise_staged_kernels.h"

namespace gable::cpu {

/// Why DepthwiseStagedPlan is not made for the problem; empty if it is.
std::string depthwise_staged_refusal(const Conv2dProblem& problem, const Target& target);

class DepthwiseStagedPlan {
 public:
  /// Precondition: depthwise_staged_refusal() is empty. Throws what checked() in check.h throws.
  DepthwiseStagedPlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;

  /// What pack()'s result depends on; not on images, epilogue or threads.
  Packing packing() const;
  /// Weights of the problem's type to f32 [panel][tap][lane]. The last panel has whole vectors; lanes past the last
  /// channel are zero.
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  std::int64_t packed_lanes() const { return round_up(problem_.k, kernels_->lanes); }

  Conv2dProblem problem_;
  const Target* target_;
  const DepthwiseStagedKernels* kernels_;
  int threads_;
  DepthwiseStagedBlocking blocking_;
  AlignedFloats workspace_;
};

}  // namespace gable::cpu
