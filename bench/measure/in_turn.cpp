// See in_turn.h.
#include "bench/measure/in_turn.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>

namespace gable::bench {
namespace {

/// The slowest first run of those that take turns decides for all. Samples of asynchronous devices are long enough for
/// the host to stay ahead of the device.
perf::TimingOptions timing_options(const Round& round, double slowest, bool by_events) {
  constexpr int kMinRuns = 5;
  constexpr double kEventSampleSeconds = 2e-3;
  perf::TimingOptions timing;
  timing.cache = round.cache;
  timing.budget_seconds = round.budget;
  timing.max_runs = round.max_runs;
  timing.clock = round.clock;
  timing.min_runs = std::clamp(static_cast<int>(round.budget / slowest), 1, std::min(kMinRuns, round.max_runs));
  timing.min_sample_seconds = std::max(timing.min_sample_seconds, round.sample_seconds);
  if (by_events) timing.min_sample_seconds = kEventSampleSeconds;
  timing.warm_up_runs = slowest > round.budget ? 0 : 1;
  return timing;
}

}  // namespace

double run_first(const std::function<void()>& call, bool on_gpu) {
  using Clock = std::chrono::steady_clock;
  if (on_gpu) call();
  const Clock::time_point start = Clock::now();
  call();
  return std::max(1e-9, std::chrono::duration<double>(Clock::now() - start).count());
}

std::vector<perf::Timing> time_in_turn(const std::vector<Turn>& turns, const Round& round) {
  std::vector<perf::Timing> timings(turns.size());
  std::vector<std::size_t> taking_turns;
  std::vector<perf::Subject> subjects;
  double slowest = 0;
  bool by_events = false;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (round.cache == perf::Cache::warm && turns[i].first_run > round.budget) {
      timings[i] = perf::summarize({turns[i].first_run});
      continue;
    }
    taking_turns.push_back(i);
    subjects.push_back(turns[i].subject);
    by_events = by_events || turns[i].by_events;
    slowest = std::max(slowest, turns[i].first_run);
  }
  if (subjects.empty()) return timings;
  std::vector<perf::Timing> taken =
      perf::measure_alternating(std::span<const perf::Subject>(subjects), timing_options(round, slowest, by_events));
  for (std::size_t i = 0; i < taking_turns.size(); ++i) timings[taking_turns[i]] = std::move(taken[i]);
  return timings;
}

}  // namespace gable::bench
