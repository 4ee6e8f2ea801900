// Q without a PMU: a child process runs the workload under valgrind's callgrind, whose cache simulation has the host's
// geometry and counts fills and write-backs. One run a level, in which that level is callgrind's last one: its first
// level writes through, so that only the last level knows which lines are dirty.
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

/// What the system says of its caches; a missing level is empty.
struct CacheGeometries {
  std::optional<CacheGeometry> l1i, l1d, l2, l3;
};

/// From `folder` (normally /sys/devices/system/cpu/cpu0/cache).
CacheGeometries read_cache_geometries(const std::string& folder);

/// callgrind wants a power of two of sets: the nearest, with as many ways as the capacity then has room for.
CacheGeometry with_power_of_two_sets(const CacheGeometry& real);

/// "49152,12,64".
std::string to_option(const CacheGeometry& geometry);

/// Event name -> total of one dump. Throws std::invalid_argument for text that is no callgrind profile.
std::map<std::string, double> callgrind_totals(const std::string& profile);

/// Bytes that the simulated last level exchanged with what is beyond it. In a warm region write-backs of lines that an
/// earlier run left dirty stand for those that this run leaves, since runs follow one another; a cold region begins
/// with clean caches, so what it leaves dirty (`residue`, written back in the sweep after it) is added. Lines of
/// instructions take room but are not counted, since the analytic traffic has none.
double callgrind_bytes(const std::map<std::string, double>& region, const std::map<std::string, double>& residue,
                       bool cold, int line);

class CallgrindSource final : public CounterSource {
 public:
  /// `helper` as open_counter_sources() says.
  CallgrindSource(CacheGeometries caches, std::string helper);

  std::string name() const override { return "callgrind"; }
  Provenance provenance() const override { return Provenance::simulated; }
  SourceStatus status() const override;
  PassPlan prepare(const CountOptions& options) override;
  /// Needs Workload::child. One repetition: a second one would read the same.
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override;

 private:
  /// The geometry that stands for the level before `metric`'s.
  std::optional<CacheGeometry> boundary(Metric metric) const;
  Quantity simulate(Metric metric, const Workload& workload, const CountOptions& options) const;

  CacheGeometries caches_;
  std::string helper_;
};

}  // namespace gable::perf
