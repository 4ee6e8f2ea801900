// W and Q(dram) on Intel CPUs through Intel PCM's `pcm-raw`, which reads the registers itself and so works where the
// kernel has no driver for them (root and the msr module needed). It counts the whole machine while a child process
// runs; the cost of starting the child is subtracted by running it with one and with several repetitions of the
// workload.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/sources/child_process.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// An event in pcm-raw's syntax: "core/config=0x4303c7,name=...".
struct PcmEvent {
  std::string unit;  ///< "core" or "imc"
  std::string name;
  std::uint64_t config = 0;
  Metric metric = Metric::flop;
  double weight = 0;  ///< FLOP or bytes per count
};

/// The events of this CPU; empty where gable does not know its memory controllers' encodings.
std::vector<PcmEvent> pcm_events(const Machine& machine);

/// Sums of each event over all units (cores, channels) and samples of pcm-raw's transposed CSV: lines of
/// date,time,event,milliseconds,cycles,unit 0,unit 1,... Other lines (messages of the tool) are skipped. Throws
/// std::invalid_argument when an event's line has no counts.
std::map<std::string, double> parse_pcm_raw(const std::string& text);

/// Starts a program; see run_child().
using StartChild = std::function<ChildResult(const std::vector<std::string>&, double)>;

class PcmSource final : public CounterSource {
 public:
  /// `helper`: see open_counter_sources(); `start` replaces run_child() in tests.
  PcmSource(Machine machine, std::string helper, StartChild start = {});

  std::string name() const override { return "pcm"; }
  Provenance provenance() const override { return Provenance::counter; }
  SourceStatus status() const override;
  PassPlan prepare(const CountOptions& options) override;
  /// Needs Workload::child and warm runs: PCM would count a flush between runs as well.
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override;

 private:
  /// The counts of one process, or the reason for their absence.
  struct Sums {
    std::map<std::string, double> counts;
    std::string reason;
  };
  Sums run(const Workload& workload, int repetitions, double seconds_limit) const;
  std::map<Metric, Quantity> difference(const Workload& workload, double seconds_limit) const;

  Machine machine_;
  std::string helper_;
  StartChild start_;
  std::vector<PcmEvent> events_;
};

}  // namespace gable::perf
