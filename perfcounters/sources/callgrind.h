// W and Q without a PMU: a child process runs the workload under valgrind's callgrind. It counts how often each
// instruction is executed; a disassembler says what each computes, which gives W (instruction_flop.h). Its cache
// simulation has the host's geometry and counts fills and write-backs. One run per level simulates that level as
// callgrind's last one: callgrind's first level writes through, so only the last level knows which lines are dirty.
//   Q(l2)    what the L1 exchanges with the L2:  a run whose last level has the L1d's geometry
//   Q(l3)    what the L2 exchanges with the L3:  ... the L2's
//   Q(dram)  what the L3 exchanges with memory:  ... the L3's
// It is exact for its model (LRU, physical = virtual addresses, no prefetch, no neighbours, an L3 that includes the L2,
// non-temporal stores as ordinary ones) and deterministic. Q(l1) is not given: callgrind counts accesses, not bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "perfcounters/sources/callgrind_run.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// Bytes that the simulated last level exchanged with the next level. Warm: lines that the previous run left dirty are
/// written back in this region; they stand for the lines that this run leaves dirty. Cold: the region starts with clean
/// caches, so the lines that it leaves dirty are added (`residue`: they are written back in the sweep after the
/// region). Instruction lines occupy the cache but are not counted, since the analytic traffic has none.
double callgrind_bytes(const std::map<std::string, double>& region, const std::map<std::string, double>& residue,
                       bool cold, int line);

class CallgrindSource final : public CounterSource {
 public:
  /// `helper`: see open_counter_sources().
  CallgrindSource(CacheGeometries caches, std::string helper);

  std::string name() const override { return "callgrind"; }
  Provenance provenance() const override { return Provenance::simulated; }
  SourceStatus status() const override;
  PassPlan prepare(const CountOptions& options) override;
  /// Needs Workload::child. Runs one repetition, since the simulation is deterministic.
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override;
  /// gable with the helper's build, valgrind and the simulated caches. The model of CPU is not among them: valgrind
  /// computes alike on all, and known work has its loop in its name.
  std::string calibration_identity() const override;

 private:
  /// One child process: the traffic of one level, or none with Metric::flop.
  struct Simulation;
  std::vector<Simulation> simulations(const std::vector<Metric>& metrics) const;
  std::map<Metric, Quantity> simulate(const Simulation& simulation, const Workload& workload,
                                      const CountOptions& options) const;

  CacheGeometries caches_;
  std::string helper_;
};

}  // namespace gable::perf
