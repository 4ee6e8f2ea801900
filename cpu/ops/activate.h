// y = function(x), element by element over contiguous arrays.
#pragma once

#include <gable/unweighted_problem.h>
#include "cpu/common/target.h"

namespace gable::cpu {

void activate(const ActivateProblem& problem, const void* x, void* y, const Target& target, int threads);

}  // namespace gable::cpu
