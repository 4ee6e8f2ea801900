// The host's bandwidths: perfcounters' loops on pinned threads, each on pages that it touched first, and files.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "bench/measure/bandwidth.h"
#include "perfcounters/ceilings/arena.h"
#include "perfcounters/ceilings/pinned_team.h"
#include "perfcounters/machine.h"

namespace gable::bench {

class HostBandwidth final : public Bandwidth {
 public:
  /// Allocates memory for the largest case that fits half of the available memory.
  HostBandwidth(int threads, const std::vector<BandwidthCase>& cases);
  Mover mover(const BandwidthCase& one) override;

 private:
  void use_threads(int threads);
  Mover memory_mover(const BandwidthCase& one);

  int all_threads_;
  double most_bytes_;     ///< half of the available memory
  double largest_bytes_;  ///< working set of the largest case within most_bytes_
  perf::Machine machine_;
  std::unique_ptr<perf::PinnedTeam> team_;
  std::vector<std::unique_ptr<perf::Arena>> arenas_;  ///< one a thread
};

}  // namespace gable::bench
