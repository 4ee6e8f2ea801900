// The parts of describe_machine(), each in a file of its own. Each fills its members of `machine`.
#pragma once

#include "perfcounters/machine.h"

namespace gable::perf {

/// isa.cpp: simd, vendor, family, model, virtual_machine, hypervisor.
void describe_isa(Machine& machine);

/// topology.cpp: threads, cores and cpus.
void describe_threads(Machine& machine);

/// topology.cpp: sizes, sharers and instances of the caches. Needs `cpus`.
void describe_caches(Machine& machine);

}  // namespace gable::perf
