// See energy.h.
#include "perfcounters/energy/energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "perfcounters/interrupt.h"

namespace gable::perf {
namespace {

constexpr double kBatchSeconds = 0.01;   // between two readings
constexpr double kSlowestRefresh = 0.1;  // of NVML's counter, s
constexpr double kMinSeconds = 0.5;      // of repetition
constexpr double kMaxUncertain = 0.101;  // share of the result: ten refreshes
constexpr int kMinUpdates = 5;           // if calls are shorter than a refresh

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A moment at which the counter was seen to have moved.
struct Edge {
  double seconds = 0;
  double joules = 0;
  std::int64_t calls = 0;
};

Energy between(const Edge& first, const Edge& last, int updates, int batches) {
  Energy energy{.seconds = last.seconds - first.seconds, .calls = last.calls - first.calls, .updates = updates};
  if (updates == 0) {
    energy.reason = "the counter did not move while the call was repeated";
    return energy;
  }
  // Readings are as far apart as refreshes, or as batches where a call takes longer than a refresh.
  const double apart = energy.seconds / updates;
  energy.uncertainty = std::min(apart, kSlowestRefresh) / energy.seconds;
  energy.watts = (last.joules - first.joules) / energy.seconds;
  if (batches >= 2 * updates && updates < kMinUpdates) {
    energy.reason = fmt::format("the counter moved only {} times in {:.2f} s", updates, energy.seconds);
  } else if (energy.seconds < kMinSeconds || energy.uncertainty > kMaxUncertain) {
    energy.reason = fmt::format("{:.2f} s of repetition are too short for a counter that is refreshed every {:.0f} ms",
                                energy.seconds, 1e3 * std::min(apart, kSlowestRefresh));
  } else {
    energy.joules = (last.joules - first.joules) / static_cast<double>(energy.calls);
  }
  return energy;
}

Energy measure(const EnergySource& source, const std::function<void(int calls)>& run, double seconds_per_call,
               const EnergyProtocol& protocol) {
  const auto now = protocol.clock ? protocol.clock : steady_seconds;
  const int batch = static_cast<int>(std::clamp(kBatchSeconds / std::max(seconds_per_call, 1e-9), 1.0, 1e6));
  EnergyMeter meter(source);
  const double start = now();
  std::optional<Edge> first;
  Edge last;
  std::int64_t calls = 0;
  int updates = 0, batches = 0;
  double seen = 0;
  for (double at = start; interrupting_signal() == 0;) {
    const bool done = first && last.seconds - first->seconds >= protocol.seconds;
    const bool still = at - start >= 3 * protocol.seconds + 2 * seconds_per_call;  // the counter does not move
    if (done || still) break;
    run(batch);
    calls += batch;
    batches += first ? 1 : 0;
    at = now();
    const double joules = meter.read();
    if (joules == seen) continue;
    seen = joules;
    last = {at, joules, calls};
    if (first) {
      ++updates;
    } else {
      first = last;
    }
  }
  return between(first.value_or(last), last, updates, batches);
}

}  // namespace

EnergyMeter::EnergyMeter(const EnergySource& source) {
  for (const EnergyCounter& counter : source.counters) states_.push_back({&counter, counter.joules()});
}

double EnergyMeter::read() {
  for (State& state : states_) {
    const double joules = state.counter->joules();
    double step = joules - state.last;
    if (step < 0 && state.counter->range <= 0)
      throw std::runtime_error(fmt::format("{} went back by {:g} J", state.counter->name, -step));
    if (step < 0) step += state.counter->range;
    joules_ += step;
    state.last = joules;
  }
  return joules_;
}

Energy measure_energy(const EnergySource& source, const std::function<void(int calls)>& run, double seconds_per_call,
                      const EnergyProtocol& protocol) {
  if (!source.available()) return {.reason = source.reason};
  try {
    return measure(source, run, seconds_per_call, protocol);
  } catch (const std::runtime_error& error) {
    return {.reason = error.what()};
  }
}

}  // namespace gable::perf
