// See perf_group.h.
#include "perfcounters/sources/perf_group.h"

namespace gable::perf {

RawGroup PerfGroup::grouped(std::span<const RawGroup> alone) {
  RawGroup group;
  for (const RawGroup& event : alone) {
    if (event.values.size() != 1) continue;  // its count is missing, and so refused
    const double part = static_cast<double>(event.time_running) / static_cast<double>(event.time_enabled);
    if (group.values.empty() ||
        part < static_cast<double>(group.time_running) / static_cast<double>(group.time_enabled)) {
      group.time_enabled = event.time_enabled;
      group.time_running = event.time_running;
    }
    group.values.push_back(event.values.front());
  }
  return group;
}

int open_memory_groups(PerfSystem& system, std::span<const MemoryEvent> events,
                       std::vector<std::vector<PerfGroup>>& groups) {
  for (const MemoryEvent& event : events) {
    groups.emplace_back();
    for (const int cpu : event.cpus) {
      PerfGroup group(system);
      if (const int error = group.add({.type = event.type, .config = event.config, .cpu = cpu})) return error;
      groups.back().push_back(std::move(group));
    }
  }
  return 0;
}

std::vector<std::vector<RawGroup>> read_memory_groups(const std::vector<std::vector<PerfGroup>>& groups) {
  std::vector<std::vector<RawGroup>> raw;
  for (const auto& of_event : groups) {
    raw.emplace_back();
    for (const PerfGroup& group : of_event) raw.back().push_back(group.read());
  }
  return raw;
}

}  // namespace gable::perf
