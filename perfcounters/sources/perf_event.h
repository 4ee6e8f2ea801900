// Hardware counters through Linux's perf_event_open: W from retired floating-point events of this process's threads,
// Q(dram) from the memory controllers' CAS counts (of the whole machine, including neighbours). Related events form a
// group, which the kernel schedules as a whole; a group that was multiplexed or overflowed is refused.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "perfcounters/sources/flop_events.h"
#include "perfcounters/sources/memory_events.h"
#include "perfcounters/sources/perf_system.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// Counts around a callable. Threads that exist when measure() is called are counted, so the work runs once before it
/// is counted, in order that its pool of threads exists.
class PerfEventSource final : public CounterSource {
 public:
  explicit PerfEventSource(PerfHost host = perf_host(), std::shared_ptr<PerfSystem> system = linux_perf_system());
  /// With other groups than flop_groups().
  PerfEventSource(PerfHost host, std::shared_ptr<PerfSystem> system, std::vector<std::vector<FlopEvent>> groups);

  std::string name() const override { return "perf_event"; }
  Provenance provenance() const override { return Provenance::counter; }
  SourceStatus status() const override;
  PassPlan prepare(const CountOptions& options) override;
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override;

 private:
  struct Counts;
  Counts count_once(const Workload& workload, const CountOptions& options) const;

  PerfHost host_;
  std::shared_ptr<PerfSystem> system_;
  std::vector<std::vector<FlopEvent>> flop_groups_;
};

}  // namespace gable::perf
