// The parts of describe_machine(), each in a file of its own. Each fills its members of `machine`.
#pragma once

#include "perfcounters/machine.h"

namespace gable::perf {

/// isa.cpp: of `cpu` vendor, family, model and simd; of `system` virtual_machine and hypervisor.
void describe_isa(Machine& machine);

/// topology.cpp: `threads`.
void describe_threads(Machine& machine);

/// topology.cpp: `caches`. Needs `threads.cpus`.
void describe_caches(Machine& machine);

}  // namespace gable::perf
