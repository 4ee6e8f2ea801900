// CUPTI's range profiler on one GPU's primary context, in user replay: the work runs again for each pass.
#pragma once

#include <string>
#include <vector>

#include "perfcounters/cupti/host.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {

/// The chip's name. Throws if counters are not available on this GPU.
std::string chip_of(int gpu);

/// Throws where the counters can't be armed.
void arm_and_disarm(int gpu);

/// Counts `request`; of its metrics only those of the set, which are all counted by hardware, or all by
/// instrumented code (is_sass()).
perf::Counted count_ranges(int gpu, const MetricSet& set, const perf::CountRequest& request);

}  // namespace gable::cupti
