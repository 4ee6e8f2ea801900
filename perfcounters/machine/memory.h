// How much memory is left, for the system and for the process's cgroup.
#pragma once

#include <cstddef>
#include <string>

namespace gable::perf {

/// What can be allocated now without swapping: MemAvailable, or what is left of a cgroup's limit if that is less.
/// `root`: before the paths in /proc and /sys, for tests.
std::size_t available_memory(const std::string& root = "");

}  // namespace gable::perf
