// A profile as JSON, and its spans as a trace for Chrome and Perfetto.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/record/profile.h"

namespace gable::bench {

nlohmann::json to_json(const ProfileDocument& profile);

/// Trace Event Format: complete events in microseconds since the first span, a process for each device and group, a
/// thread for each lane.
nlohmann::json chrome_trace(const std::vector<Span>& spans);

}  // namespace gable::bench
