// The regions that a thread is in, and what happens at their begin and end.
#pragma once

#include <cstdint>

#include "perfcounters/listen/perf_counts.h"
#include "perfcounters/listen/region_table.h"

namespace gable::listen {

/// Who ends a region: only an end of the same kind does. gable/region.h's regions, NVTX's ranges by domain (the address
/// of its Domain), and NVTX's ranges with an id, which any thread may end.
using Kind = std::uint64_t;
constexpr Kind kRegionKind = 1;
constexpr Kind kRangeBit = Kind{1} << 63;  ///< in the kind of a range with an id; the rest is the id

struct Beginning {
  const char* name;
  Origin origin;
  Kind kind;
  double flop = 0, bytes = 0;  ///< declared; 0: not
};

/// Begins a region of this thread; its level, from 0 on.
int begin_region(const Beginning& what);
/// Ends this thread's innermost region of that kind; its level, or -1 without one.
int end_region(Kind kind);

/// Begins a range that end_range() ends in any thread; its id, or 0 where it can't be recorded.
std::uint64_t begin_range(const char* name);
void end_range(std::uint64_t id);

/// Path of this thread's innermost region; "" outside.
const char* current_path();

}  // namespace gable::listen
