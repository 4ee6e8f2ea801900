// See problems.h.
#include "backends/cpu/problems.h"

#include "backends/op_fields.h"

namespace gable {

cpu::Type type_of(DType dtype) { return type_as<cpu::Type>(dtype); }

cpu::Conv2dProblem problem_of(const Conv2d& conv) { return conv2d_as<cpu::Conv2dProblem>(conv); }

cpu::MatmulProblem problem_of(const Matmul& matmul) {
  return {.m = matmul.m,
          .n = matmul.n,
          .k = matmul.k,
          .type = type_of(matmul.dtype),
          .bias = matmul.bias,
          .activation = activation_as<cpu::Activation>(matmul.activation)};
}

cpu::MaxPoolProblem problem_of(const MaxPool& pool) { return max_pool_as<cpu::MaxPoolProblem>(pool); }

}  // namespace gable
