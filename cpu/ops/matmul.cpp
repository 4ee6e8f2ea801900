// The mapping of a matrix product to a 1×1 convolution.
#include "cpu/ops/matmul.h"

#include <stdexcept>
#include <string>

namespace gable::cpu {

Conv2dProblem as_conv2d(const MatmulProblem& m) {
  for (const auto& [name, value] : {std::pair{"m", m.m}, std::pair{"n", m.n}, std::pair{"k", m.k}}) {
    if (value >= 1) continue;
    throw std::invalid_argument(std::string("matmul: ") + name + " is " + std::to_string(value) +
                                ", must be at least 1");
  }
  Conv2dProblem conv;
  conv.c = m.k;
  conv.w = conv.wo = m.m;
  conv.k = m.n;
  conv.type = m.type;
  conv.bias = m.bias;
  conv.activation = m.activation;
  return conv;
}

}  // namespace gable::cpu
