// What a region costs a program while gable listens.
#pragma once

#include <optional>
#include <string>

namespace gable::perf {

/// Of one call, in seconds. Several threads that run regions at once pay more.
struct RegionCost {
  double pair = 0;    ///< a begin and an end
  double inside = 0;  ///< the part of it that the call's own T has; the rest is what is around the call
};

/// Runs empty regions in a child process, for about 10 ms. `folder`: an empty session folder. None: the listener can't
/// be loaded, or no process be made.
std::optional<RegionCost> measure_region_cost(const std::string& folder);

}  // namespace gable::perf
