// See simulated_parts.h.
#include "perfcounters/program/simulated_parts.h"

#include <string_view>

namespace gable::perf {
namespace {

constexpr std::string_view kRegion = "gable:";          // the listener's label
constexpr std::string_view kResidue = "gable-residue";  // libgable_preload.so's

}  // namespace

SimulatedPart& SimulatedPart::operator+=(const SimulatedPart& other) {
  flop += other.flop;
  for (const auto& [event, count] : other.events) events[event] += count;
  return *this;
}

SimulatedPart SimulatedPart::operator*(double factor) const {
  SimulatedPart scaled{.flop = flop * factor, .events = events};
  for (auto& [event, count] : scaled.events) count *= factor;
  return scaled;
}

SimulatedParts parts_of(const CallgrindProfile& profile, FlopCounter* counter) {
  SimulatedParts parts;
  for (const auto& [label, dump] : profile) {
    const bool is_region = label.compare(0, kRegion.size(), kRegion) == 0;
    if (label == kResidue) parts.is_swept = true;
    SimulatedPart& part =
        label == kResidue ? parts.residue : parts.regions[is_region ? label.substr(kRegion.size()) : ""];
    part += {.flop = counter != nullptr ? counter->count(dump) : FlopCount{}, .events = dump.totals};
  }
  return parts;
}

SimulatedPart inclusive_part(const SimulatedParts& parts, const std::string& path) {
  SimulatedPart sum;
  const std::string below = path + "/";
  for (const auto& [name, part] : parts.regions)
    if (path.empty() || name == path || name.compare(0, below.size(), below) == 0) sum += part;
  return sum;
}

}  // namespace gable::perf
