// The host's bandwidths: perfcounters' loops on pinned threads, each over pages that it touched first, and files.
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
  /// Takes memory for the largest of the cases that half of what is available holds.
  HostBandwidth(int threads, const std::vector<BandwidthCase>& cases);
  Mover mover(const BandwidthCase& one) override;

 private:
  void use_threads(int threads);
  Mover memory_mover(const BandwidthCase& one);

  int all_threads_;
  double most_bytes_;     ///< half of what was available
  double largest_bytes_;  ///< of the cases that stay below
  perf::Machine machine_;
  std::unique_ptr<perf::PinnedTeam> team_;
  std::vector<std::unique_ptr<perf::Arena>> arenas_;  ///< one a thread
};

}  // namespace gable::bench
