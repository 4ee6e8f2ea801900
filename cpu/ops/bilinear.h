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

  std::size_t bytes() const { return first.size() * 2 * (sizeof(std::int32_t) + sizeof(float)); }
};

/// Computes the neighbours and allocates the workspace once; run() allocates nothing.
class BilinearPlan {
 public:
  /// Throws std::invalid_argument naming the number of pixels where a row of the input has 2^31 or more, which
  /// gable::validate() refuses as well.
  BilinearPlan(const BilinearProblem& problem, const Target& target, int threads);

  /// Of the threads' strips and of the neighbours.
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float) + columns_.bytes(); }

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
