// See measure.h. Slow calls are the difficulty: one call of a slow kernel may take longer than the budget, so each
// device runs once first, and what that took decides how many runs are due.
#include "bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <new>

#include "bench/problem.h"

namespace gable::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Shares what is left of the total among the cases that are left.
class Budget {
 public:
  Budget(const MeasureOptions& options, std::size_t cases) : options_(options), cases_left_(cases) {}

  bool spent() const { return options_.seconds_total > 0 && left() <= 0; }

  /// For one device and cache state of the next case.
  double next(std::size_t devices) {
    const double share =
        left() / static_cast<double>(cases_left_ * std::max<std::size_t>(1, devices) * options_.caches.size());
    --cases_left_;
    return options_.seconds_total > 0 ? std::min(options_.seconds_each, share) : options_.seconds_each;
  }

 private:
  double left() const { return options_.seconds_total - seconds_since(start_); }

  const MeasureOptions& options_;
  std::size_t cases_left_;
  Clock::time_point start_ = Clock::now();
};

perf::TimingOptions timing_options(const MeasureOptions& options, perf::Cache cache, double budget, double slowest) {
  constexpr int kLeastRuns = 5;
  perf::TimingOptions timing;
  timing.cache = cache;
  timing.budget_seconds = budget;
  timing.max_runs = options.max_runs;
  timing.min_runs = std::clamp(static_cast<int>(budget / slowest), 1, std::min(kLeastRuns, options.max_runs));
  timing.warm_up_runs = slowest > budget ? 0 : 1;
  return timing;
}

/// Plans and places the case on every device that supports it. (A list, because runners are referred to.)
std::list<ConvRunner> prepare(const Case& one, const std::vector<OpenDevice>& devices, const ConvData& data,
                              Outcome& outcome) {
  std::list<ConvRunner> runners;
  for (const OpenDevice& device : devices) {
    try {
      runners.emplace_back(device, one.conv);
      runners.back().prepare(data);
    } catch (const Error& error) {
      if (!runners.empty() && &runners.back().device() == &device) runners.pop_back();
      outcome.refuse(one, device.uri, error);
    }
  }
  return runners;
}

/// A runner with what its first run took, in seconds.
struct Contestant {
  const ConvRunner* runner;
  double first_run;
};

std::vector<Contestant> first_runs(const std::list<ConvRunner>& runners) {
  std::vector<Contestant> contestants;
  for (const ConvRunner& runner : runners) {
    const Clock::time_point start = Clock::now();
    runner.run();
    contestants.push_back({&runner, std::max(1e-9, seconds_since(start))});
  }
  return contestants;
}

/// Warm times of calls that already took longer than their budget are what their first run took: at such lengths
/// nothing is left to warm up. The others take turns.
void measure_in_turn(const Case& one, const std::vector<Contestant>& all, perf::Cache cache,
                     const MeasureOptions& options, double budget, Outcome& outcome,
                     const std::function<void(const Measured&)>& report) {
  std::vector<const ConvRunner*> runners;
  std::vector<perf::Subject> subjects;
  double slowest = 0;
  for (const Contestant& c : all) {
    if (cache == perf::Cache::warm && c.first_run > budget) {
      report({&one, c.runner, cache, perf::summarize({c.first_run})});
      ++outcome.ran;
      continue;
    }
    runners.push_back(c.runner);
    subjects.push_back(c.runner->subject());
    slowest = std::max(slowest, c.first_run);
  }
  if (subjects.empty()) return;
  const auto timings = perf::measure_alternating(std::span<const perf::Subject>(subjects),
                                                 timing_options(options, cache, budget, slowest));
  for (std::size_t i = 0; i < runners.size(); ++i) {
    report({&one, runners[i], cache, timings[i]});
    ++outcome.ran;
  }
}

void measure_case(const Case& one, const std::vector<OpenDevice>& devices, const MeasureOptions& options, double budget,
                  Outcome& outcome, const MeasureCallbacks& callbacks) {
  validate(one.conv);
  require_memory(bytes_needed(one.conv, devices.size()), fmt::format("'{}'", descriptor(one.conv)));
  const ConvData data = random_data(one.conv);
  const std::list<ConvRunner> runners = prepare(one, devices, data, outcome);
  const std::vector<Contestant> contestants = first_runs(runners);
  for (const perf::Cache cache : options.caches) {
    measure_in_turn(one, contestants, cache, options, budget, outcome, callbacks.report);
  }
}

}  // namespace

void measure_cases(const std::vector<Case>& cases, const std::vector<OpenDevice>& devices,
                   const MeasureOptions& options, Outcome& outcome, const MeasureCallbacks& callbacks) {
  Budget budget(options, cases.size());
  std::size_t done = 0;
  for (const Case& one : cases) {
    callbacks.progress(done++, cases.size(), fmt::format("{} {}", one.name, to_string(one.conv.dtype)));
    try {
      if (budget.spent()) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("not measured: the {} s for the whole study were over", options.seconds_total));
      }
      measure_case(one, devices, options, budget.next(devices.size()), outcome, callbacks);
    } catch (const Error& error) {
      outcome.refuse(one, "", error);
    } catch (const std::bad_alloc&) {
      outcome.refuse(one, "", Error(ErrorCode::out_of_memory, "host memory ran out"));
    }
  }
}

}  // namespace gable::bench
