// Groups of opened events, which perf_event.cpp and program/perf_counts.cpp count with.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "perfcounters/sources/memory_events.h"
#include "perfcounters/sources/perf_system.h"

namespace gable::perf {

/// Events that the kernel schedules together or not at all.
class PerfGroup {
 public:
  explicit PerfGroup(PerfSystem& system) : system_(&system) {}
  PerfGroup(PerfGroup&& other) noexcept : system_(other.system_), members_(std::exchange(other.members_, {})) {}
  PerfGroup& operator=(PerfGroup&&) = delete;
  ~PerfGroup() {
    for (const int member : members_) system_->close(member);
  }
  /// Adds an event, whose leader is filled in here. Returns errno where it could not be opened, else 0.
  int add(PerfEvent event) {
    event.leader = members_.empty() ? -1 : members_.front();
    const int opened = system_->open(event);
    if (opened < 0) return -opened;
    members_.push_back(opened);
    return 0;
  }
  bool empty() const { return members_.empty(); }
  void start() const { system_->start(members_.front()); }
  void stop() const { system_->stop(members_.front()); }
  RawGroup read() const { return system_->read(members_.front(), members_.size()); }
  /// The events of a program, which can only be read one by one, as a group: it counted as long as the event that
  /// counted least.
  RawGroup read_program() const {
    std::vector<RawGroup> alone;
    for (const int member : members_) alone.push_back(system_->read_alone(member));
    return grouped(alone);
  }
  static RawGroup grouped(std::span<const RawGroup> alone);

 private:
  PerfSystem* system_;
  std::vector<int> members_;
};

/// groups[i] holds event i's groups, one per CPU. Returns errno of an event that could not be opened, else 0.
int open_memory_groups(PerfSystem& system, std::span<const MemoryEvent> events,
                       std::vector<std::vector<PerfGroup>>& groups);
std::vector<std::vector<RawGroup>> read_memory_groups(const std::vector<std::vector<PerfGroup>>& groups);

}  // namespace gable::perf
