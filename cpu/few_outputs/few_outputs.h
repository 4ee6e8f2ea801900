// 1x1 convolution of NHWC images with at most 8 output channels, with any stride, and matrix products with as few
// columns. Other kernels hold output channels in the lanes of a vector, and most lanes would stay empty; here lanes are
// input channels. Each pixel is read once, for all outputs. A unit of work is a run of pixels, whose sums stay in L1
// until their epilogue.
#pragma once

#include <cstddef>
#include <string>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/common/tiling.h"
#include "cpu/few_outputs/few_outputs_kernels.h"

namespace gable::cpu {

/// Why FewOutputsPlan is not made for the problem; empty if it is.
std::string few_outputs_refusal(const Conv2dProblem& problem, const Target& target);

/// How long a run will last (estimate.h). Precondition: few_outputs_refusal() is empty.
double few_outputs_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class FewOutputsPlan {
 public:
  /// Precondition: few_outputs_refusal() is empty. Throws what checked() in check.h throws.
  FewOutputsPlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;
  Packing packing() const;

  /// Weights to [channel / lanes][output][lane], with zeros beyond the last channel.
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  std::size_t bias_floats() const { return line_floats(problem_.k * kernels_->lanes); }
  std::size_t sums_floats() const { return line_floats(unit_pixels_ * problem_.k + kFewOutputsTile); }

  Conv2dProblem problem_;  // with its pixels in a row where they may be
  const Target* target_;
  const FewOutputsKernels* kernels_;
  int threads_;
  std::int64_t unit_pixels_;
  AlignedFloats workspace_;  // the bias of as many pixels as a vector has lanes, and sums of each thread
};

}  // namespace gable::cpu
