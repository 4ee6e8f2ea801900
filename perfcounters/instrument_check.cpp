// gable_instrument_check: checks that times on this machine have the expected order. Wider vectors are not slower, L1
// is faster than DRAM, several threads are faster than one, a cold run is slower than a warm one, the clock is
// plausible. This shows loops that a compiler broke and flushes that do not flush. Run it on a quiet machine: it prints
// each comparison and exits with 1 where one does not hold.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "perfcounters/ceilings/ceilings.h"
#include "perfcounters/ceilings/loops.h"
#include "perfcounters/machine.h"
#include "perfcounters/timing.h"

namespace {

using namespace gable::perf;

/// Prints a line for each comparison and counts the failed ones.
class Checks {
 public:
  void at_least(const std::string& what, double value, double limit) {
    const bool holds = value >= limit;  // false for NaN
    fmt::print("{:<7} {}: {:.3g}, at least {:.3g}\n", holds ? "holds" : "FAILS", what, value, limit);
    if (!holds) ++failed_;
  }
  int failed() const { return failed_; }

 private:
  int failed_ = 0;
};

/// FLOP/s of each loop. Each runs for about a millisecond in turn: the fastest of many samples was not interrupted.
std::map<std::string, double> loop_rates() {
  const std::vector<ComputeLoop> loops = f32_loops();
  constexpr std::int64_t kIterations = 500000;
  std::vector<std::function<void()>> calls;
  for (const ComputeLoop& loop : loops) calls.push_back([&loop] { loop.run(kIterations); });
  TimingOptions options{.min_runs = 40, .max_runs = 40};
  options.rewarm_below_seconds = 0;
  const std::vector<Timing> timings = measure_alternating(calls, options);
  std::map<std::string, double> rates;
  for (std::size_t i = 0; i < loops.size(); ++i)
    rates[loops[i].name()] = loops[i].flop_per_instruction / timings[i].fastest;
  return rates;
}

void check_widths(Checks& checks) {
  const auto rates = loop_rates();
  const auto times_as_fast = [&](const std::string& fast, const std::string& slow, double limit) {
    checks.at_least(fast + " beside " + slow, rates.at(fast) / rates.at(slow), limit);  // throws on an unknown name
  };
  const Machine machine = describe_isa_only();
#if defined(__x86_64__)
  if (machine.cpu.has("sse4")) times_as_fast("sse4 f32", "scalar f32", 2);
  if (machine.cpu.has("avx2") && machine.cpu.has("fma")) {
    times_as_fast("avx2 f32", "sse4 f32", 1.5);
    times_as_fast("avx2 fma f32", "sse4 fma f32", 1.5);
    times_as_fast("avx2 fma f32", "avx2 f32", 0.9);
  }
  if (rates.contains("avx512 fma f32")) times_as_fast("avx512 fma f32", "avx2 fma f32", 0.8);
#elif defined(__aarch64__)
  times_as_fast("neon fma f32", "scalar fma f32", 2);
#endif
}

void check_memory_and_threads(Checks& checks) {
  const Machine machine = describe_machine();
  std::map<std::pair<std::string, int>, double> values;
  const auto ceilings = measure_ceilings(machine, {.quick = true, .progress = {}});
  for (const Ceiling& ceiling : ceilings) values[{ceiling.name, ceiling.threads}] = ceiling.limit.value;
  checks.at_least("l1 read beside dram read", values.at({"l1 read", 1}) / values.at({"dram read", 1}), 1.5);
  if (machine.threads.available == 1) return;
  // Threads wait for the slowest of them, so that another program on one CPU hides the gain of most ceilings.
  double best_gain = 0;
  for (const Ceiling& ceiling : ceilings) {
    if (ceiling.threads == 1)
      best_gain = std::max(best_gain, values.at({ceiling.name, machine.threads.available}) / ceiling.limit.value);
  }
  checks.at_least("all threads beside one, best ceiling", best_gain, 1.3);
}

/// A chain of dependent loads through 2048 lines in shuffled order: no prefetcher and no compiler hides its latency.
void check_flush(Checks& checks) {
  constexpr std::size_t kLines = 2048;
  constexpr std::size_t kStep = 8;
  std::vector<std::size_t> order(kLines);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::vector<std::size_t> next(kLines * kStep);
  for (std::size_t i = 0; i < kLines; ++i) next[order[i] * kStep] = order[(i + 1) % kLines] * kStep;
  std::size_t at = 0;
  const auto chase = [&] {
    for (std::size_t i = 0; i < kLines; ++i) at = next[at];
    asm volatile("" : : "r"(at));
  };
  TimingOptions options{.min_runs = 15, .max_runs = 15};
  const double warm = measure(chase, options).seconds;
  options.cache = Cache::cold;
  checks.at_least("a chain of loads, cold beside warm", measure(chase, options).seconds / warm, 2);
}

void check_clock(Checks& checks) {
#if defined(__x86_64__) || defined(__aarch64__)
  const double clock = measure_clock_hz();
  checks.at_least("clock in GHz", clock * 1e-9, 0.5);
  checks.at_least("8 GHz beside the clock", 8e9 / clock, 1);
#else
  (void)checks;
#endif
}

}  // namespace

int main() {
  Checks checks;
  check_clock(checks);
  check_widths(checks);
  check_memory_and_threads(checks);
  check_flush(checks);
  return checks.failed() == 0 ? 0 : 1;
}
