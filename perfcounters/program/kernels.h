// The GPU kernels of a session: what libgable_cupti.so wrote inside the program's processes (kernel_file.h).
#pragma once

#include <string>

#include "perfcounters/program/session.h"

namespace gable::perf {

/// Reads every kernels.PID.N.txt of the folder. A kernel may come in several records: counted, and with the
/// reason why its launches in a CUDA graph were not; or of a process that replaced itself. Files that are cut off or no
/// such files give what they have and a note; never throws for content. Fills `kernels`, `processes` (number and end)
/// and `notes` (each once, with its cure).
SessionRecords read_kernels(const std::string& folder);

}  // namespace gable::perf
