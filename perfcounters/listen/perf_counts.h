// Perf events of this process, read at the begin and the end of regions. GABLE_SESSION_EVENTS lists them, parted by
// commas: type:config:weight, of this process's threads; type:config:weight:cpu, of everything on one CPU (memory
// controllers). Numbers as strtoull reads them (0x...); the weight is for whoever reads the session.
#pragma once

#include <cstdint>

#include "perfcounters/listen/region_file.h"

namespace gable::listen {

struct EventValue {
  std::uint64_t count, enabled, running;
};

/// Opens the events for all threads that there are now, and those that they will make. Returns how many events are
/// listed; one that can't be opened has its errno. In a forked child it closes the parent's first.
std::uint32_t open_events(EventInfo (&events)[kMaxEvents]);

/// The sums now. `values` has an entry for each event.
void read_events(EventValue* values);

}  // namespace gable::listen
