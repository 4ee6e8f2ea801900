// T of every kernel of this process, from CUPTI's activity records, which the GPU's own clock writes.
// together: kernels run as they would, those of CUDA graphs too. CUPTI puts instructions of its own into each kernel:
// on an H200, kernels with little work a thread took up to 10 % longer (46 % with blocks of 1024 threads that only
// store). alone: one kernel after the other, between two time stamps of the stream. The code is the program's: within
// 0.5 % of the unprofiled run. CUPTI times a graph as a whole then, so its kernels are left out.
#pragma once

#include "perfcounters/cupti/injection/session.h"

namespace gable::cupti {

enum class Timing { together, alone };

/// Starts; throws GpuProfilerError. `file` gets what is recorded, several times a second and in finish_timing().
void start_timing(SessionFile& file, Timing timing);

/// A launch of a kernel or of a CUDA graph has been given its correlation number, in the calling thread's region.
void note_launch(std::uint32_t correlation, bool is_graph);

/// A GPU that kernels may run on.
void note_gpu(int gpu, const std::string& name);

/// Takes what CUPTI has: the process is about to end.
void finish_timing();

}  // namespace gable::cupti
