// T of every kernel of this process, from CUPTI's activity records, which the GPU's own clock writes.
// together: kernels run as they would, those of CUDA graphs too. CUPTI puts instructions of its own into each kernel:
// on an H200, kernels with little work a thread took up to 10 % longer (46 % with blocks of 1024 threads that only
// store). alone: one kernel after the other, between two time stamps of the stream. The code is the program's: within
// 0.5 % of the unprofiled run. CUDA graphs are timed as a whole then; some of their launches become launches of their
// nodes (graph_unroller.h), so that their kernels have times as well.
#pragma once

#include <functional>

#include "perfcounters/cupti/injection/session.h"
#include "perfcounters/cupti/library.h"

namespace gable::cupti {

enum class Timing { together, alone };

/// Starts; throws GpuProfilerError. `file` gets what is recorded, several times a second and in finish_timing().
/// `stop`: called, on a thread of its own, once recording costs more than RecordingCost allows and has ended: it is to
/// end the calls of what is below. Null: all is recorded.
void start_timing(SessionFile& file, Timing timing, std::function<void()> stop);

/// A launch begins, of a kernel or of a CUDA graph, in the calling thread's region.
void note_launch(CUpti_CallbackId call, const CUpti_CallbackData& data);
void note_graph_launch(CUpti_CallbackId call, const CUpti_CallbackData& data);

/// A graph was instantiated or changed.
void note_graph(CUpti_CallbackId call, const CUpti_CallbackData& data);
/// A graph was destroyed, or something in it was changed that is no kernel.
void note_graph_end(const CUpti_CallbackData& data);
/// A node of a graph was cloned.
void note_clone(const CUpti_GraphData& data);

/// A GPU that kernels may run on; a context ends.
void note_gpu(int gpu, const std::string& name);
void note_context_end(CUcontext context);

/// Takes what CUPTI has: the process is about to end.
void finish_timing();

}  // namespace gable::cupti
