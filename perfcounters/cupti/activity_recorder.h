// A GPU's activity from CUPTI's records: kernels, copies, fills, and the CUDA API calls that started them. CUPTI fills
// buffers on its own threads and hands them over by functions without a context, so there is one recorder.
#pragma once

#include <vector>

#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {

void start_recording();

/// All activity since start_recording(), by start time. Throws GpuProfilerError if records were lost.
std::vector<perf::Activity> stop_recording();

}  // namespace gable::cupti
