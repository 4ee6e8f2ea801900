// Depthwise 3x3 convolution of NHWC images, stride 1 or 2: lanes are channels, and each input vector that is loaded
// serves every output of a tile of two rows. The tiles at a row's ends skip the taps that read padding, so the input is
// never staged. DepthwiseStagedPlan takes what this one refuses.
#pragma once

#include <cstddef>
#include <string>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/depthwise/depthwise_kernels.h"

namespace gable::cpu {

/// Why DepthwisePlan is not made for the problem; empty if it is.
std::string depthwise_refusal(const Conv2dProblem& problem, const Target& target);

class DepthwisePlan {
 public:
  /// Precondition: depthwise_refusal() is empty. Throws what checked() in check.h throws.
  DepthwisePlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return (zeros_.size() + bias_.size()) * sizeof(float); }
  std::size_t packed_bytes() const;

  /// What pack()'s result depends on; not on images, epilogue or threads.
  Packing packing() const;
  /// Weights of the problem's type to f32 [group][tap][lane].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  std::int64_t groups() const { return ceil_div(problem_.c, lanes_); }
  std::int64_t channel_of(std::int64_t group, std::int64_t lane) const;
  std::int64_t moved_bytes() const;  // of x and y
  bool non_temporal() const;         // stores are non-temporal, where y is aligned to cache lines

  Conv2dProblem problem_;
  const Target* target_;
  const DepthwiseKernels* kernels_;
  bool pairs_;          // groups are of two vectors
  std::int64_t lanes_;  // of a group
  int threads_;
  std::int64_t unit_rows_, row_blocks_;
  AlignedFloats zeros_;  // a row of padding, which every thread reads
  AlignedFloats bias_;   // in the order of groups
};

}  // namespace gable::cpu
