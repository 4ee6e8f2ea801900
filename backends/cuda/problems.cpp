// See problems.h.
#include "backends/cuda/problems.h"

#include "backends/op_fields.h"

namespace gable {
namespace {

cuda::Math math_of(Math math) {
  switch (math) {
    case Math::tf32:
      return cuda::Math::tf32;
    case Math::split3:
      return cuda::Math::split3;
    case Math::split6:
      return cuda::Math::split6;
    case Math::strict:
      break;
  }
  return cuda::Math::strict;
}

}  // namespace

cuda::Type type_of(DType dtype) { return type_as<cuda::Type>(dtype); }

cuda::Conv2dProblem problem_of(const Conv2d& conv) {
  auto p = conv2d_as<cuda::Conv2dProblem>(conv);
  p.math = math_of(conv.math);
  return p;
}

cuda::Conv2dProblem problem_of(const Matmul& matmul) {
  return {.c = matmul.k,
          .w = matmul.m,
          .k = matmul.n,
          .wo = matmul.m,
          .type = type_of(matmul.dtype),
          .math = math_of(matmul.math),
          .bias = matmul.bias,
          .activation = activation_as<cuda::Activation>(matmul.activation)};
}

cuda::MaxPoolProblem problem_of(const MaxPool& pool) { return max_pool_as<cuda::MaxPoolProblem>(pool); }

cuda::WeightStrides weight_strides(const Conv2d& conv) { return cuda::dense_strides(problem_of(conv)); }

cuda::WeightStrides weight_strides(const Matmul& matmul) { return {.out = 1, .in = matmul.n, .row = 0, .column = 0}; }

}  // namespace gable
