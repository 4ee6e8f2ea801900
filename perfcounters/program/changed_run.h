// A run of a program in which one thing is different, so that its cost can be measured: denormal numbers are zeros, or
// all threads have one CPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gable::perf {

enum class Change { denormals_as_zeros, one_cpu };

/// The CPU time of a run with its output thrown away. Empty where the run was killed after `seconds_limit`, was
/// interrupted or ended with another status than `status`, and where the change can't be made here.
std::optional<double> changed_cpu_seconds(const std::vector<std::string>& argv, Change change, double seconds_limit,
                                          int status);

}  // namespace gable::perf
