// The child's side of Workload::child: a process that sources count from outside or inside. It warms or empties the
// caches as the task requires, runs the work, and marks the measured region for callgrind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

/// Does the task. Under callgrind (task.markers) the simulation starts here with empty caches; code before it runs at
/// valgrind's smaller slowdown. Statistics are dumped as "region". A sweep then evicts all lines that the region left
/// dirty; its statistics are dumped as "residue". Throws std::invalid_argument for a task that this build can't do.
void run_counted(const std::function<void()>& run, const ChildTask& task);

/// Whether this build has callgrind's header and can mark a region.
bool can_mark_regions();

/// The task as words of a command line: "--repetitions 1 --cold --markers".
std::vector<std::string> task_arguments(const ChildTask& task);

}  // namespace gable::perf
