// A program's GPU kernels with their times, and with W and Q from the GPU's counters in further runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/program/parts.h"
#include "perfcounters/program/kernel_counts.h"
#include "perfcounters/program/session.h"

namespace gable::bench {

struct GpuCountRequest {
  std::vector<std::string> argv{};
  std::string folder{};    ///< empty; for the runs' files
  bool runs_again = true;  ///< false: only what the run under the clock gave, and all kernels' times
  bool completes = true;   ///< false: without a run for all kernels' times, where the run under the clock lacks some
  bool counts = true;      ///< W and Q too
  bool deep = false;       ///< counts what kernel_findings() needs too
  int exit_status = 0;     ///< of the run under the clock
  double seconds = 0;      ///< of that run
  double counter_seconds = 300;  ///< longest run that counts
};

struct GpuParts {
  std::vector<MeasuredPart> parts{};
  std::vector<std::string> notes{};
};

/// What is to be known of a kernel's T. `graphs`: of the program's CUDA graphs; none: not known.
std::vector<std::string> flags_of_time(const perf::KernelPoint& kernel,
                                       const std::optional<perf::GraphSlowdown>& graphs);

GpuParts count_gpu(const perf::SessionRecords& timed, const GpuCountRequest& request,
                   const std::function<void(const std::string& what)>& progress);

}  // namespace gable::bench
