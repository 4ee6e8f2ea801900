// exp(x) over its sum, along one dimension.
#pragma once

#include <gable/unweighted_problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

void softmax(const SoftmaxProblem& problem, const void* x, void* y, const Target& target, int threads);

}  // namespace gable::cpu
