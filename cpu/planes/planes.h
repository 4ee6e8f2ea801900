// Convolution of NCHW images: lanes of a vector are pixels, so neither input nor output is transposed. f32 vectors of
// any target take every storage type; AVX512-BF16 takes bf16, and AMX bf16, f16 and f32 as products of bf16 parts.
//   tile_unit  what computes tiles      blocking  how a problem is cut      packing  weights      work_unit  the loops
//   kernels    staging, f32 tiles, epilogues      dot, amx  bf16 tiles
#pragma once

#include <gable/problem.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/common/check.h"
#include "cpu/common/description.h"
#include "cpu/planes/work_unit.h"

namespace gable::cpu {

/// Why PlanesPlan is not made for the problem; empty if it is. `products` of bf16 parts a term; 0: f32 arithmetic.
std::string planes_refusal(const Conv2dProblem& problem, int products, const planes::TileUnit& unit);

/// How long a run of a problem that it takes will last, in seconds.
double planes_seconds(const Conv2dProblem& problem, int products, const planes::TileUnit& unit, int threads);

class PlanesPlan {
 public:
  /// Precondition: planes_refusal() is empty. `target` is what the code around the tiles is compiled for. Throws what
  /// checked() in check.h throws.
  PlanesPlan(const Conv2dProblem& problem, int products, const planes::TileUnit& unit, const Target& target,
             int threads);
  /// The same in f32 arithmetic.
  PlanesPlan(const Conv2dProblem& problem, const Target& target, int threads)
      : PlanesPlan(problem, 0, planes::vector_unit(target), target, threads) {}

  Conv2dDescription description() const;
  std::size_t workspace_bytes() const { return workspace_.size() * sizeof(float); }
  std::size_t packed_bytes() const;
  Packing packing() const;
  void pack(const void* weights, const WeightStrides& strides, void* packed) const;

  /// The same contract as Conv2dPlan::run().
  void run(const void* x, const void* packed, const float* bias, void* y);

 private:
  Conv2dProblem problem_;
  const planes::TileUnit* unit_;
  const Target* target_;
  int threads_;
  planes::Blocking blocking_;
  AlignedFloats workspace_;
  std::vector<planes::Scratch> scratch_;  // one a thread
};

}  // namespace gable::cpu
