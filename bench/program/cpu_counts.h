// W and Q of a program's work on the CPU, region by region: by the PMU's counters in a further run, or by a simulation
// under valgrind where there is no PMU.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/counting/row_counters.h"
#include "bench/program/findings.h"
#include "bench/program/parts.h"

namespace gable::bench {

struct CpuCountRequest {
  std::vector<std::string> argv{};
  CounterMode mode = CounterMode::automatic;
  std::string folder{};        ///< empty; for the runs' files
  double seconds_limit = 300;  ///< of one simulated run
  bool uses_gpu = false;       ///< the program launched GPU kernels
  double cpu_seconds = 0;      ///< of the run under the clock, all threads
  int exit_status = 0;         ///< of the run under the clock; a run that ends otherwise gets a note
};

struct CpuCounts {
  std::map<std::string, CountedWork> by_region{};  ///< by the region's path; the whole program is ""
  std::string reason{};                            ///< why a region has no counts
  std::vector<std::string> notes{};
  std::optional<WorkEvidence> evidence{};  ///< of a simulation
  bool interrupted = false;                ///< Ctrl-C came while the program ran for its counts
};

/// `bytes` that the loads and stores of a call move become its Q(l1). A Q(dram) below 4 KiB and below a thousandth of
/// that becomes 0: a few lines of the stack or of code are no traffic of the data, and W over them is no intensity.
void add_accesses(CountedWork& work, double bytes);

/// Throws Error(unsupported) where the mode names a kind of source that this machine has none of.
void require_source(CounterMode mode);

CpuCounts count_cpu(const CpuCountRequest& request, const std::function<void(const std::string& what)>& progress);

}  // namespace gable::bench
