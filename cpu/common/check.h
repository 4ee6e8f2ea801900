// Checks of a convolution, for plans of any kernel.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <string>

#include "cpu/common/target.h"

namespace gable::cpu {

/// Throws std::invalid_argument that names the first offending value.
void check(const Conv2dProblem& problem);

/// Throws std::invalid_argument "op: name is value, must be at least least" where it is less.
void check_at_least(const char* op, const char* name, std::int64_t value, std::int64_t least);

/// The problem, for a plan of a kernel that takes only some: throws std::invalid_argument that names what check(), the
/// kernel's refusal or the number of threads has against it.
const Conv2dProblem& checked(const std::string& kernel, const Conv2dProblem& problem,
                             std::string (*refusal)(const Conv2dProblem&, const Target&), const Target& target,
                             int threads);

}  // namespace gable::cpu
