// Images upsampled by bilinear interpolation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gable/unweighted_problem.h>
#include "cpu/common/aligned.h"
#include "cpu/common/target.h"

namespace gable::cpu {

/// The neighbours of all pixels of a row of output, as arrays, so that vectors can gather by them.
struct RowNeighbours {
  std::vector<std::int32_t> first, second;
  std::vector<float> first_share, second_share;
};

/// Computes the neighbours and allocates the workspace once; run() allocates nothing.
class BilinearPlan {
 public:
  BilinearPlan(const BilinearProblem& problem, const Target& target, int threads);

  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }

  /// One run at a time a plan.
  void run(const void* x, void* y);

 private:
  BilinearProblem problem_;
  const Target* target_;
  int threads_;
  RowNeighbours columns_;
  std::size_t thread_floats_;
  AlignedFloats workspace_;
};

}  // namespace gable::cpu
