// Turns a record's ceilings into the ceilings under which rows are judged, for studies whose ceilings were measured in
// another run.
#pragma once

#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/record/study.h"
#include "perfcounters/machine.h"

namespace gable::bench {

/// The entries of one machine. A record has no size of a GPU's L2, so warm rows of a GPU are judged by its memory
/// alone.
MachineCeilings ceilings_of(const std::vector<CeilingEntry>& entries, const std::vector<RateEntry>& rates);

/// What judge_rows() needs of a recorded machine: its caches and cores.
perf::Machine machine_of(const MachineEntry& entry);

}  // namespace gable::bench
