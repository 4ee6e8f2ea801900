// From gable's ops to the plain structs that kernels take (gable/problem.h).
#pragma once

#include <gable/ops.h>
#include <gable/plan.h>
#include <gable/problem.h>
#include <gable/unweighted_problem.h>

namespace gable {

/// `conv`, `matmul` and `pool` are valid ops.
Conv2dProblem problem_of(const Conv2d& conv);
MatmulProblem problem_of(const Matmul& matmul);
MaxPoolProblem problem_of(const MaxPool& pool);

ActivateProblem problem_of(const Activate& activate);
ConcatProblem problem_of(const Concat& concat);
UpsampleProblem problem_of(const Upsample& upsample);           ///< of nearest
BilinearProblem bilinear_problem_of(const Upsample& upsample);  ///< of the others
MultiplyProblem problem_of(const Multiply& multiply);
SoftmaxProblem problem_of(const Softmax& softmax);

/// The bound of a kernel that computes an op without weights in f32.
ErrorBound unweighted_bound(const Op& op);

/// An op with weights as the convolution kernels take it: a matrix product is a 1x1 convolution, and images of one
/// column are images of one row.
struct WeightedOp {
  Op op;
  Conv2dProblem problem;
  WeightStrides strides;  ///< of the weights that pack() reads
};

/// `op` is a Conv2d or a Matmul.
WeightedOp weighted_op(const Op& op);
/// The same convolution with the axes of its description: a column stays one. Models that were fitted to layers as they
/// are listed, and libraries that run them so, take this.
Conv2dProblem upright_problem(const Op& op);
bool has_weights(const Op& op);
/// The bound of a kernel that adds products of the op's dtype in f32, in any order.
ErrorBound f32_bound(const WeightedOp& op);

}  // namespace gable
