// What takes a GPU kernel's time, from its counters and the roofs: the reasons that a profiler's rules name, each with
// the numbers that it is believed for.
//
// Names: "overhead" (a launch takes longer than the kernel), "few blocks" (idle multiprocessors), "local memory"
// (spilled registers, indexed local arrays), "uncoalesced", "bank conflicts", "divergence", "atomics", "memory:LEVEL",
// "compute", "issue slots" (other instructions than arithmetic), "latency" (warps wait; the evidence says for what).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/record/insight.h"
#include "bench/record/row.h"

namespace gable::bench {

struct KernelEvidence {
  double seconds = 0;                      ///< median of a launch
  double launch_seconds = 0;               ///< of a launch without work that is waited for; 0: not measured
  std::map<std::string, double> counts{};  ///< per launch: perf::KernelPoint::parts with `deep`
  std::map<std::string, double> stalls{};  ///< perf::KernelPoint::stalls
  Verdict verdict{};                       ///< of its row; empty where it has none
};

/// The best supported first. Empty where nothing was counted.
std::vector<Regime> kernel_findings(const KernelEvidence& evidence);

}  // namespace gable::bench
