// Counts the heap allocations of this process, of every library and every thread in it.
#pragma once

namespace gable::conformance {

/// False under sanitizers: they bring an allocator of their own.
bool can_count_allocations();
/// Since the process began. Always 0 where they can't be counted.
long allocations();

}  // namespace gable::conformance
