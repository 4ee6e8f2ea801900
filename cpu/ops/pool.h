// Max-pooling of a tensor on its own (the convolution fuses its own pool). A NaN in a window comes out as NaN; padding
// never wins, so a window must touch at least one real element.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/aligned.h"
#include "cpu/common/target.h"

namespace gable::cpu {

/// Checks, chooses the kernel and allocates the workspace once; run() allocates nothing.
class MaxPoolPlan {
 public:
  /// Throws std::invalid_argument naming the value when the problem is inconsistent or the CPU lacks the target.
  MaxPoolPlan(const MaxPoolProblem& problem, const Target& target, int threads);

  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }

  /// x and y of the problem's type and layout. One run at a time a plan.
  void run(const void* x, void* y);

 private:
  MaxPoolProblem problem_;
  const Target* target_;
  int threads_;
  std::size_t thread_floats_;
  AlignedFloats workspace_;
};

}  // namespace gable::cpu
