// What a GPU did, from CUPTI's activity records: kernels, copies, fills, and the calls of the CUDA API that led to
// them. CUPTI fills buffers on its own threads and hands them over by functions without a context, so there is one
// recorder.
#pragma once

#include <vector>

#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {

void start_recording();

/// Everything since start_recording(), by start. Throws GpuProfilerError where records were lost.
std::vector<perf::Activity> stop_recording();

}  // namespace gable::cupti
