// Q without a PMU: a child process runs the workload under valgrind's callgrind, whose cache simulation has the host's
// geometry and counts fills and write-backs. One run per level simulates that level as callgrind's last one:
// callgrind's first level writes through, so only the last level knows which lines are dirty.
//   Q(l2)    what the L1 exchanges with the L2:  a run whose last level has the L1d's geometry
//   Q(l3)    what the L2 exchanges with the L3:  ... the L2's
//   Q(dram)  what the L3 exchanges with memory:  ... the L3's
// It is exact for its model (LRU, physical = virtual addresses, no prefetch, no neighbours, an L3 that includes the L2,
// non-temporal stores as ordinary ones) and deterministic. Q(l1) is not given: callgrind counts accesses, not bytes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

struct CacheGeometry {
  std::size_t bytes = 0;
  int ways = 0;
  int line = 64;

  std::size_t sets() const { return bytes / (static_cast<std::size_t>(ways) * static_cast<std::size_t>(line)); }
  bool operator==(const CacheGeometry&) const = default;
};

/// The cache geometries that the system reports; a missing level is empty.
struct CacheGeometries {
  std::optional<CacheGeometry> l1i, l1d, l2, l3;
};

/// From `folder` (normally /sys/devices/system/cpu/cpu0/cache).
CacheGeometries read_cache_geometries(const std::string& folder);

/// callgrind requires a power-of-two number of sets: the nearest one, with as many ways as fit the capacity.
CacheGeometry with_power_of_two_sets(const CacheGeometry& real);

/// "49152,12,64".
std::string to_option(const CacheGeometry& geometry);

/// Event name -> total of one dump. Throws std::invalid_argument for text that is no callgrind profile.
std::map<std::string, double> callgrind_totals(const std::string& profile);

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

 private:
  /// The geometry of the level in front of the one that `metric` measures.
  std::optional<CacheGeometry> boundary(Metric metric) const;
  Quantity simulate(Metric metric, const Workload& workload, const CountOptions& options) const;

  CacheGeometries caches_;
  std::string helper_;
};

}  // namespace gable::perf
