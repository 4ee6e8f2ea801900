// Counts the heap allocations of this process, of every library and every thread in it, and lets one fail.
#pragma once

namespace gable::conformance {

/// False under sanitizers: they bring an allocator of their own.
bool can_count_allocations();
/// Since the process began. Always 0 where they can't be counted.
long allocations();
/// Those that were not freed yet.
long live_allocations();

enum class Failing { one, from_there_on };

/// Lets the calling thread's allocation number `nth` from now, counted from 0, find no memory, or that one and all that
/// follow. Only where allocations can be counted.
void fail_allocation(long nth, Failing failing = Failing::one);
/// Ends that. True if an allocation failed.
bool allocation_failed();

}  // namespace gable::conformance
