// y = a * b, where b may have one factor for each channel of an image.
#pragma once

#include <gable/unweighted_problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

void multiply(const MultiplyProblem& problem, const void* a, const void* b, void* y, const Target& target, int threads);

}  // namespace gable::cpu
