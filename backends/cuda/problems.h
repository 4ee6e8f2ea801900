// From gable's ops to the plain structs that the kernels of cuda/ take.
#pragma once

#include <gable/ops.h>

#include "cuda/common/conv2d_problem.h"
#include "cuda/ops/pool.h"

namespace gable {

cuda::Type type_of(DType dtype);
cuda::Conv2dProblem problem_of(const Conv2d& conv);
/// A matrix product is a 1×1 convolution over one row of m pixels in NHWC, whose weights lie in b's order.
cuda::Conv2dProblem problem_of(const Matmul& matmul);
cuda::MaxPoolProblem problem_of(const MaxPool& pool);

/// Where the op's weights lie: OIHW, or a matmul's b.
cuda::WeightStrides weight_strides(const Conv2d& conv);
cuda::WeightStrides weight_strides(const Matmul& matmul);

}  // namespace gable
