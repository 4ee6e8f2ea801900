// C[M,N] = A[M,K] · B[K,N] (+ bias, activation), row-major. A matrix product is a 1×1 convolution over M pixels in NHWC
// whose weights lie in B's order, so every convolution kernel is a matrix-product kernel too.
#pragma once

#include "cpu/common/conv2d_problem.h"

namespace gable::cpu {

struct MatmulProblem {
  std::int64_t m = 1, n = 1, k = 1;
  Type type = Type::f32;  // of A, B and C
  bool bias = false;      // one f32 a column
  Activation activation = Activation::none;
};

/// Throws std::invalid_argument naming the size that is below 1.
Conv2dProblem as_conv2d(const MatmulProblem& problem);

/// Of B[K,N].
inline WeightStrides dense_strides(const MatmulProblem& problem) { return {1, problem.n, 0, 0}; }

}  // namespace gable::cpu
