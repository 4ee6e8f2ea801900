// The measurement protocol on clocks that the tests turn themselves.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/timing.h"

using namespace gable::perf;

TEST_CASE("median and quartiles are interpolated order statistics, samples keep their order") {
  const Timing odd = summarize({5, 1, 4, 2, 3});
  CHECK(odd.seconds == 3);
  CHECK(odd.q1 == 2);
  CHECK(odd.q3 == 4);
  CHECK(odd.fastest == 1);
  CHECK(odd.runs == 5);
  CHECK(odd.samples == std::vector<double>{5, 1, 4, 2, 3});
  const Timing even = summarize({4, 1, 3, 2});
  CHECK(even.seconds == doctest::Approx(2.5));
  CHECK(even.q1 == doctest::Approx(1.75));
  CHECK(even.q3 == doctest::Approx(3.25));
  const Timing single = summarize({7});
  CHECK(single.q1 == 7);
  CHECK(single.q3 == 7);
  CHECK_THROWS_AS(summarize({}), std::invalid_argument);
}

TEST_CASE("calls are measured in turn, each rewarmed, and results keep their order") {
  std::string order;
  const auto taking = [&](char name, double seconds) {
    return Subject{[&order, name, seconds](int calls) { return order += name, seconds * calls; }, {}};
  };
  const std::vector<Subject> subjects{taking('A', 1), taking('B', 2)};
  TimingOptions options{.min_runs = 3, .max_runs = 3};
  options.rewarm_below_seconds = 0;
  const auto timings = measure_alternating(subjects, options);
  CHECK(order == "ABABABAB");  // one warm-up each, then three samples in turn
  REQUIRE(timings.size() == 2);
  CHECK(timings[0].samples == std::vector<double>{1, 1, 1});
  CHECK(timings[1].samples == std::vector<double>{2, 2, 2});

  order.clear();
  options.rewarm_below_seconds = 1.5;
  measure_alternating(subjects, options);
  CHECK(order == "ABAABAABAAB");  // only the short one is rewarmed
}

TEST_CASE("the host's clock times a callable, and every callable is called as often as its samples say") {
  int first = 0;
  int second = 0;
  const std::vector<std::function<void()>> calls{[&] { ++first; }, [&] { ++second; }};
  TimingOptions options{.min_runs = 3, .max_runs = 3, .min_sample_seconds = 0};
  options.rewarm_below_seconds = 0;
  const auto timings = measure_alternating(calls, options);
  CHECK(first == 4);  // a warm-up and three samples
  CHECK(second == 4);
  for (const Timing& timing : timings) CHECK(*std::min_element(timing.samples.begin(), timing.samples.end()) >= 0);
}

TEST_CASE("a call that is too short for the clock is batched, warm only") {
  long count = 0;
  const Subject subject{[&](int calls) { return count += calls, 1e-7 * calls; }, [] {}};
  TimingOptions options{.min_runs = 5, .max_runs = 5, .min_sample_seconds = 1e-3};
  const Timing warm = measure_alternating(std::span(&subject, 1), options).front();
  CHECK(warm.calls_per_run >= 10000);  // a sample lasts 1 ms
  CHECK(warm.calls_per_run <= 30000);
  CHECK(warm.seconds == doctest::Approx(1e-7));
  CHECK(count > 5L * warm.calls_per_run);
  options.cache = Cache::cold;
  CHECK(measure_alternating(std::span(&subject, 1), options).front().calls_per_run == 1);
}

TEST_CASE("sampling stops at the budget, but not before min_runs nor after max_runs") {
  double now = 0;
  const Subject subject{[&](int calls) { return now += 0.25 * calls, 0.25 * calls; }, {}};
  const auto runs = [&](int min_runs, int max_runs, double budget_seconds) {
    TimingOptions options{.min_runs = min_runs, .max_runs = max_runs, .budget_seconds = budget_seconds};
    options.clock = [&] { return now; };
    return measure_alternating(std::span(&subject, 1), options).front().runs;
  };
  CHECK(runs(4, 100, 0) == 4);
  CHECK(runs(1, 6, 10) == 6);
  CHECK(runs(1, 1000, 2.5) == 10);
}

TEST_CASE("rewarming and flushing count towards the budget") {
  double now = 0;
  const Subject subject{[&](int calls) { return now += 0.25 * calls, 0.25 * calls; }, [&] { now += 0.75; }};
  TimingOptions options{.cache = Cache::cold, .min_runs = 1, .max_runs = 1000, .budget_seconds = 5};
  options.clock = [&] { return now; };
  CHECK(measure_alternating(std::span(&subject, 1), options).front().runs == 5);
}

TEST_CASE("the flusher sweeps the given bytes, by default at least twice this machine's last level") {
  CHECK(CacheFlusher(1 << 20).bytes() >= 1 << 20);
  CHECK(CacheFlusher(1 << 20).bytes() <= (1 << 20) + 64);
  const Machine machine = describe_machine();
  CHECK(CacheFlusher().bytes() >= 2 * std::max(machine.caches.l2.bytes, machine.caches.l3.bytes));
}

TEST_CASE("a subject brings its own clock and its own flush") {
  int calls_timed = 0;
  int flushed = 0;
  const Subject subject{[&](int calls) { return calls_timed += calls, 0.25 * calls; }, [&] { ++flushed; }};
  TimingOptions options{.min_runs = 3, .max_runs = 3};
  const Timing warm = measure_alternating(std::span(&subject, 1), options).front();
  CHECK(warm.seconds == 0.25);
  CHECK(calls_timed == 4);  // a warm-up and three samples
  CHECK(flushed == 0);
  options.cache = Cache::cold;
  CHECK(measure_alternating(std::span(&subject, 1), options).front().seconds == 0.25);
  CHECK(flushed == 3);
}

TEST_CASE("contradictory options and empty callables are refused") {
  CHECK_THROWS_AS(measure({}), std::invalid_argument);
  CHECK_THROWS_AS(measure([] {}, {.min_runs = 5, .max_runs = 4}), std::invalid_argument);
  CHECK_THROWS_AS(measure([] {}, {.min_runs = 0}), std::invalid_argument);
}
