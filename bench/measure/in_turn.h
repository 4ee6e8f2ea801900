// The protocol of a round: how often calls that take turns are run, under one budget for each of them. Cases on devices
// (measure.h) and a user's own callables (library/) are timed by it alike.
#pragma once

#include <functional>
#include <vector>

#include "perfcounters/timing.h"

namespace gable::bench {

struct Round {
  perf::Cache cache = perf::Cache::warm;
  double budget = 1;  ///< seconds of each call
  int max_runs = 50;
  std::function<double()> clock{};  ///< seconds, by which the budget is spent; empty: the host's steady clock
  double sample_seconds = 0;        ///< shorter warm calls are batched to samples of this length; 0: TimingOptions' own
};

/// A call that takes turns with others.
struct Turn {
  perf::Subject subject;
  double first_run = 0;  ///< seconds of run_first()
  bool by_events = false;
};

/// Seconds of the first run of `call`, which decides the number of runs: one call may take longer than the budget.
/// `on_gpu`: of the second, since the first one loads code.
double run_first(const std::function<void()>& call, bool on_gpu);

/// Times in the order of `turns`. A warm call whose first run exceeded the budget keeps the time of that run: at such
/// lengths a warm-up changes nothing. The others take turns.
std::vector<perf::Timing> time_in_turn(const std::vector<Turn>& turns, const Round& round);

}  // namespace gable::bench
