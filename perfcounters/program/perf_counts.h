// W and Q(dram) of a program that is not gable's, from the CPU's own counters: perf events of its first process, which
// its threads and children inherit, and the memory controllers of the whole machine (flop_events.h and
// memory_events.h have the events and the arithmetic). Of its regions, the listener inside the program reads the same
// events at their begin and end.
//
//   ProgramCounts counts;
//   for (int run = 0; run < counts.runs(); ++run) {
//     auto environment = session_environment(folder(run), SessionMode::time);
//     append(environment, counts.environment(run));
//     launch({.argv = app, .environment = environment, .attach = [&](int pid) { counts.attach(pid, run); }});
//     counts.collect(read_session(folder(run)));
//   }
//   counts.program().flop
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/program/session.h"
#include "perfcounters/sources/flop_events.h"
#include "perfcounters/sources/perf_group.h"

namespace gable::perf {

class ProgramCounts {
 public:
  struct Work {
    Quantity flop{};  ///< W
    /// Its parts: "f64", "f32", "f16"; "" where this CPU's events do not tell types. Of use where `flop` has a value.
    std::map<std::string, double> flop_by_type{};
    Quantity dram_bytes{};  ///< Q(dram), including the traffic of other programs at the same time
  };

  explicit ProgramCounts(PerfHost host = perf_host(), std::shared_ptr<PerfSystem> system = linux_perf_system());

  /// What can be counted here, or why not, as PerfEventSource says it.
  const SourceStatus& status() const { return status_; }
  /// How often the program must run: once for each group of core events. 0: nothing can be counted here, and status()
  /// says why.
  int runs() const;
  /// GABLE_SESSION_EVENTS for the regions of this run.
  std::vector<std::pair<std::string, std::string>> environment(int run) const;
  /// Opens the events of this run. `pid`: a process that waits before its exec() (Launch::attach).
  void attach(int pid, int run);
  /// Reads what was attached, when the program has ended, and the regions of that run.
  void collect(const SessionRecords& session);

  /// W and Q of the whole program, for one run.
  Work program() const;
  /// W and Q of one call of each region on average, including what it calls; by path, summed over processes.
  std::map<std::string, Work> regions() const;

 private:
  /// What was counted for one path in all runs.
  struct Region {
    Work work{};
    std::map<std::string, double> extra{};
  };
  struct RegionSum;

  bool counts(Metric metric) const { return ability(status_, metric).available; }
  /// The core events of this run; empty where W can't be counted.
  std::vector<FlopEvent> core_events(int run) const;
  /// The memory controllers' events that the listener reads in this run; where there are none, the reason.
  std::vector<MemoryEvent> region_memory(int run, std::string& reason) const;
  void collect_region(const RegionSum& sum, Region& into) const;
  Work finished(const Work& work, const std::map<std::string, double>& extra) const;

  PerfHost host_;
  std::shared_ptr<PerfSystem> system_;
  SourceStatus status_;
  std::vector<std::vector<FlopEvent>> flop_groups_;
  std::vector<MemoryEvent> memory_;
  int run_ = -1;  ///< that is attached
  std::vector<PerfGroup> core_;
  std::vector<std::vector<PerfGroup>> boxes_;
  Work program_{};
  std::map<std::string, double> extra_;
  std::map<std::string, Region> regions_;
};

}  // namespace gable::perf
