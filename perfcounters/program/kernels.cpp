// The files kernels.* of a session folder, which libgable_cupti.so writes.
#include "perfcounters/program/session.h"

namespace gable::perf {

SessionRecords read_kernels(const std::string&) { return {}; }

}  // namespace gable::perf
