// From gable's ops to the plain structs that the kernels of cpu/ take.
#pragma once

#include <gable/ops.h>

#include "cpu/common/conv2d_problem.h"
#include "cpu/ops/matmul.h"
#include "cpu/ops/pool.h"

namespace gable {

cpu::Type type_of(DType dtype);
cpu::Conv2dProblem problem_of(const Conv2d& conv);
cpu::MatmulProblem problem_of(const Matmul& matmul);
cpu::MaxPoolProblem problem_of(const MaxPool& pool);

}  // namespace gable
