// Perf events of this process, read at the begin and the end of regions. GABLE_SESSION_EVENTS lists them, separated by
// commas: type:config:weight, of this process's threads; type:config:weight:cpu, of everything on one CPU (memory
// controllers). Numbers as strtoull reads them (0x...); the reader of the session uses the weight.
#pragma once

#include <cstdint>

#include "perfcounters/listen/region_file.h"

namespace gable::listen {

struct EventValue {
  std::uint64_t count, enabled, running;
};

/// Opens the events for all existing threads and the threads that they will create. Returns the number of listed
/// events; an event that can't be opened has its errno. A forked child first closes the parent's events.
std::uint32_t open_events(EventInfo (&events)[kMaxEvents]);

/// The sums now. `values` has an entry for each event.
void read_events(EventValue* values);

}  // namespace gable::listen
