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

/// Returns the problem, checked for a kernel's plan. Throws std::invalid_argument if check() does, if the CPU lacks the
/// target, or if threads is less than 1. The kernel's refusal is not computed again: callers only make plans of
/// problems that the kernel takes.
const Conv2dProblem& checked(const char* kernel, const Conv2dProblem& problem, const Target& target, int threads);

}  // namespace gable::cpu
