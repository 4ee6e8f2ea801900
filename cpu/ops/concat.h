// The channels of two tensors in one.
#pragma once

#include <gable/unweighted_problem.h>

namespace gable::cpu {

void concat(const ConcatProblem& problem, const void* a, const void* b, void* y, int threads);

}  // namespace gable::cpu
