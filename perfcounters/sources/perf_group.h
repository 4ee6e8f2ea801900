// What perf_event.cpp and program/perf_counts.cpp share: groups of opened events, and the words for what can't be
// counted.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/sources/perf_event.h"

namespace gable::perf {

constexpr const char* kNoMemoryPmu = "the kernel lists no memory-controller PMU (uncore_imc_*, amd_umc_*)";

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

/// Why an event of a core, or of a memory controller, could not be opened on this host.
SourceStatus explain_core_failure(const PerfHost& host, int error);
SourceStatus explain_memory_failure(const PerfHost& host, int error);

/// Adds the values of events that are no part of W (weight 0), by their names.
void add_extra(std::span<const FlopEvent> events, std::span<const RawGroup> groups,
               std::map<std::string, double>& extra);

/// AMX's busy cycles among them; 0: none, or not counted.
double amx_cycles(const std::map<std::string, double>& extra);
/// W, or its refusal where AMX was busy: its operations have no event.
Quantity without_amx(Quantity flop, const std::map<std::string, double>& extra);

}  // namespace gable::perf
