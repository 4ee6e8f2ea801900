// Depthwise convolution of NHWC images: any window, stride, dilation, padding and number of outputs an input channel.
// Lanes are channels. f32 input is read in place, padding is skipped; 16-bit input is widened row by row into L1, and
// results are narrowed from there. DepthwiseStagedPlan takes what has a pool.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/common/parallel.h"
#include "cpu/depthwise/depthwise_blocking.h"

namespace gable::cpu {

/// Why DepthwisePlan is not made for the problem; empty if it is.
std::string depthwise_refusal(const Conv2dProblem& problem, const Target& target);

/// How long a run will last (estimate.h). Precondition: depthwise_refusal() is empty.
double depthwise_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class DepthwisePlan {
 public:
  /// Precondition: depthwise_refusal() is empty. Throws what checked() in check.h throws.
  DepthwisePlan(const Conv2dProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const;
  std::size_t packed_bytes() const;

  /// What pack()'s result depends on; not on images, epilogue or threads.
  Packing packing() const;
  /// Weights of the problem's type to f32 [vector][tap][lane].
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  /// TapRuns of two cache lines. Threads rewrite their runs for each row of output. The gap keeps other threads' data
  /// two cache lines away, since cores fetch lines in pairs.
  static constexpr std::int64_t kRunsGap = ceil_div(128, std::int64_t{sizeof(TapRun)});

  struct Run;
  class UnitBlock;

  std::int64_t packed_lanes() const;
  std::int64_t runs_apart() const;
  TapRun* runs_of(int thread) { return runs_.data() + kRunsGap + thread * runs_apart(); }
  bool non_temporal() const;  // stores are non-temporal if y is aligned to cache lines

  Conv2dProblem problem_;
  const Target* target_;
  int threads_;
  DepthwiseBlocking blocking_;
  AxisCut columns_;
  RunTimes run_times_;
  AlignedFloats workspace_;   // a part a thread
  AlignedFloats bias_;        // empty if the caller's bias is used
  std::vector<TapRun> runs_;  // of one row of output, for each thread, with gaps of kRunsGap
};

}  // namespace gable::cpu
