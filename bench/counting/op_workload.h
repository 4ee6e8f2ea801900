// The workload of an op's row, for counter sources: in this process, and as a command line of `gable counted`.
#pragma once

#include <string>

#include "bench/measure/measure.h"
#include "perfcounters/sources/source.h"

namespace gable::bench {

/// `measured` must outlive it. `helper` is the gable program that runs the workload in a process of its own.
perf::Workload workload_of(const Measured& measured, const std::string& helper);

}  // namespace gable::bench
