// Convolution with its epilogue (bias, activation, max-pool) on this CPU.
//
//   Conv2dPlan plan(problem, best_target(), threads);     // chooses tile and blocking, allocates the workspace
//   std::vector<float> packed(plan.packed_floats());
//   plan.pack(weights, dense_strides(problem), packed.data());  // once
//   plan.run(x, packed.data(), bias, y);                  // as often as you like; allocates nothing
//
// Result: y = max_pool(activation(conv(x, weights) + bias)), computed as activation(max_pool(conv) + bias), which is
// the same since adding a constant and a monotone activation both commute with the maximum. Without a pool the maximum
// is over one element. NaN: a NaN in a window, or under relu, comes out as NaN.
#pragma once

#include <gable/problem.h>

#include <cstddef>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/common/parallel.h"
#include "cpu/common/target.h"
#include "cpu/direct/conv2d_blocking.h"
#include "cpu/direct/conv2d_kernels.h"

namespace gable::cpu {

/// How long a run will last (estimate.h).
double conv2d_seconds(const Conv2dProblem& problem, const Target& target, int threads);

class Conv2dPlan {
 public:
  /// Throws std::invalid_argument naming the value when the problem is inconsistent or the CPU lacks the target.
  Conv2dPlan(const Conv2dProblem& problem, const Target& target, int threads)
      : Conv2dPlan(problem, conv2d_kernels(target), target, threads) {}
  /// With the target's kernels, or with what other cores prefer of them. `kernels` must outlive the plan.
  Conv2dPlan(const Conv2dProblem& problem, const Conv2dKernels& kernels, const Target& target, int threads);

  const Conv2dProblem& problem() const { return problem_; }
  Conv2dDescription description() const;

  std::size_t packed_floats() const;
  std::size_t packed_bytes() const { return packed_floats() * sizeof(float); }
  /// Memory that the plan holds beyond tensors and packed weights, all threads together.
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }

  /// What pack()'s result depends on; not on images, epilogue or threads.
  Packing packing() const;
  /// Weights of problem().type to this plan's own order. 64-byte alignment of `packed` helps.
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// x and y of problem().type and layout; bias has k floats and is ignored (may be null) without problem().bias. One
  /// run at a time a plan: the workspace is the plan's.
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  std::int64_t packed_lanes() const;  // of all panels of one group, in whole vectors

  Conv2dProblem problem_;
  const Target* target_;
  const Conv2dKernels* kernels_;
  int threads_;
  Conv2dBlocking blocking_;
  AlignedFloats workspace_;
  RunTimes run_times_;
};

}  // namespace gable::cpu
