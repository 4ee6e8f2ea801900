// C[M,N] = A[M,K] · B[K,N] (+ bias, activation), row-major, f32/f16/bf16 storage, f32 accumulation. A matrix product is
// a 1×1 convolution over M pixels in NHWC, so this is Conv2dPlan with B packed from its own order.
#pragma once

#include "cpu/conv2d.h"

namespace gable::cpu {

struct MatmulProblem {
  std::int64_t m = 1, n = 1, k = 1;
  Type type = Type::f32;  // of A, B and C
  bool bias = false;      // one f32 a column
  Activation activation = Activation::none;
};

class MatmulPlan {
 public:
  /// Throws std::invalid_argument naming the value when a size is below 1 or the CPU lacks the target.
  MatmulPlan(const MatmulProblem& problem, const Target& target, int threads);

  Conv2dDescription description() const { return plan_.description(); }
  std::size_t packed_floats() const { return plan_.packed_floats(); }
  std::size_t workspace_bytes() const { return plan_.workspace_bytes(); }

  /// B[K,N], once.
  void pack(const void* b, float* packed) const;
  /// Allocates nothing. One run at a time a plan.
  void run(const void* a, const float* packed_b, const float* bias, void* c) { plan_.run(a, packed_b, bias, c); }

 private:
  std::int64_t n_;
  Conv2dPlan plan_;
};

}  // namespace gable::cpu
