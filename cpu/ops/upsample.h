// Pixels repeated.
#pragma once

#include <gable/unweighted_problem.h>

namespace gable::cpu {

void upsample(const UpsampleProblem& problem, const void* x, void* y, int threads);

}  // namespace gable::cpu
