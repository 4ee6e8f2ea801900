// The levels that a row's traffic (Q) may be of. A level's traffic is the bytes that it serves (perf::Metric).
#pragma once

#include <array>

namespace gable::bench {

/// Farthest from the core first.
inline constexpr std::array kLevels{"dram", "l3", "l2", "l1"};

/// The farthest level for which `has(level)` is true; nullptr if there is none.
template <typename Has>
const char* farthest_level(const Has& has) {
  for (const char* level : kLevels)
    if (has(level)) return level;
  return nullptr;
}

}  // namespace gable::bench
