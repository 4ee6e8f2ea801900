// The other side of Workload::child: what a process does that sources count around or inside. It makes the caches what
// the task says, runs the work, and marks the measured region for callgrind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

/// Does the task. Under callgrind (task.markers) the simulation begins here, on empty caches, so that everything before
/// runs at valgrind's lesser slowdown; statistics are dumped as "region" and, after a sweep that evicts every line that
/// the region left dirty, as "residue". Throws std::invalid_argument for a task that is impossible in this build.
void run_counted(const std::function<void()>& run, const ChildTask& task);

/// Whether this build has callgrind's header and so can mark a region.
bool can_mark_regions();

/// The task as words of a command line: "--repetitions 1 --cold --markers".
std::vector<std::string> task_arguments(const ChildTask& task);

}  // namespace gable::perf
