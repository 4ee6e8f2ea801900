// T of every kernel of this process, from CUPTI's activity records, which the GPU's own clock writes: kernels in CUDA
// graphs too. CUPTI adds a few instructions to each thread: on an H200 kernels of one element a thread took up to 10 %
// longer, all others 1 %.
#pragma once

#include "perfcounters/cupti/injection/session.h"

namespace gable::cupti {

/// Starts; throws GpuProfilerError. `file` gets what is recorded, several times a second and in finish_timing().
void start_timing(SessionFile& file);

/// A launch's correlation number has been given while the calling thread is in a region.
void note_launch(std::uint32_t correlation);

/// A GPU that kernels may run on.
void note_gpu(int gpu, const std::string& name);

/// Takes what CUPTI has: the process is about to end.
void finish_timing();

}  // namespace gable::cupti
