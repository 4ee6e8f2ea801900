// Sampling loop, batching and cache flushing behind timing.h.
#include "perfcounters/timing.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/interruptions.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/machine.h"

namespace gable::perf {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Series {
  const Subject* subject;
  int calls_per_run = 1;
  double call_seconds = 0;
  double spent = 0;
  std::vector<double> samples;

  bool wants_more(const TimingOptions& options) const {
    const int taken = static_cast<int>(samples.size());
    if (taken >= options.max_runs) return false;
    if (interrupting_signal() != 0 && taken > 0) return false;
    return taken < options.min_runs || spent < options.budget_seconds;
  }
};

void check(std::span<const Subject> subjects, const TimingOptions& options) {
  for (std::size_t i = 0; i < subjects.size(); ++i)
    if (!subjects[i].time)
      throw std::invalid_argument("callable " + std::to_string(i) + " is empty; each must be callable");
  if (options.min_runs < 1 || options.max_runs < options.min_runs)
    throw std::invalid_argument("min_runs = " + std::to_string(options.min_runs) + ", max_runs = " +
                                std::to_string(options.max_runs) + "; need 1 <= min_runs <= max_runs");
}

// The warm-up also measures the call's time, which decides how many calls make one sample.
void warm_up(Series& series, const TimingOptions& options) {
  for (int i = 0; i < std::max(1, options.warm_up_runs); ++i) series.call_seconds = series.subject->time(1);
  if (options.cache == Cache::cold) return;
  while (series.call_seconds * series.calls_per_run < options.min_sample_seconds && series.calls_per_run < (1 << 24)) {
    const double shortfall = options.min_sample_seconds / std::max(series.call_seconds * series.calls_per_run, 1e-9);
    series.calls_per_run = static_cast<int>(std::ceil(series.calls_per_run * std::clamp(shortfall * 1.2, 2.0, 64.0)));
    series.call_seconds = series.subject->time(series.calls_per_run) / series.calls_per_run;
  }
}

/// Seconds of a sample, after what must precede it.
double sample_seconds(const Series& series, const TimingOptions& options, bool alone, CacheFlusher* flusher) {
  const Subject& subject = *series.subject;
  if (options.cache == Cache::cold)
    subject.flush ? subject.flush() : flusher->flush();
  else if (!alone && series.call_seconds < options.rewarm_below_seconds)
    subject.time(1);
  return subject.time(series.calls_per_run);
}

/// A sample that another program interrupts is taken again: the least of kTries counts.
void take_sample(Series& series, const TimingOptions& options, bool alone, CacheFlusher* flusher) {
  constexpr int kTries = 4;
  constexpr double kRepeatable = 20e-3;  // seconds: no longer sample goes without interruptions
  const auto clock = [&] { return options.clock ? options.clock() : now(); };
  const double start = clock();
  double least = 0;
  for (int i = 0; i < kTries; ++i) {
    const long before = interruptions();
    const double seconds = sample_seconds(series, options, alone, flusher);
    least = i == 0 ? seconds : std::min(least, seconds);
    if (interruptions() == before || seconds > kRepeatable) break;
  }
  series.samples.push_back(least / series.calls_per_run);
  series.spent += clock() - start;
}

std::size_t default_flush_bytes() {
  const Machine machine = describe_machine();
  const std::size_t shared =
      2 * machine.caches.l3.bytes * static_cast<std::size_t>(std::max(1, machine.caches.l3.instances));
  // Each thread's slice must evict its core's private caches, too.
  const std::size_t own =
      4 * (machine.caches.l1d.bytes + machine.caches.l2.bytes) * static_cast<std::size_t>(omp_get_max_threads());
  return std::max({shared, own, std::size_t{32} << 20});
}

}  // namespace

double quantile(std::span<const double> sorted, double fraction) {
  if (sorted.empty()) throw std::invalid_argument("no samples: a quantile needs at least one");
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

Timing summarize(std::vector<double> samples, int calls_per_run) {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  Timing timing;
  timing.seconds = quantile(sorted, 0.5);
  timing.q1 = quantile(sorted, 0.25);
  timing.q3 = quantile(sorted, 0.75);
  timing.fastest = sorted.front();
  timing.runs = static_cast<int>(samples.size());
  timing.calls_per_run = calls_per_run;
  timing.samples = std::move(samples);
  return timing;
}

CacheFlusher::CacheFlusher(std::size_t bytes) {
  buffer_.assign((bytes == 0 ? default_flush_bytes() : bytes) / sizeof(buffer_[0]) + 1, 1);
}

void CacheFlusher::flush() {
  const auto count = static_cast<long long>(buffer_.size());
  const unsigned long long* data = buffer_.data();
  unsigned long long sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (long long i = 0; i < count; i += 8) sum += data[i];  // one word a 64-byte line
  sink_ += sum;
  asm volatile("" : : "r"(sink_) : "memory");  // keeps the compiler from removing the sweep
}

std::function<void()> sweep_caches() {
  return [flusher = std::make_shared<std::optional<CacheFlusher>>()] {
    if (!*flusher) flusher->emplace();
    (*flusher)->flush();
  };
}

Subject on_host(std::function<void()> call) {
  if (!call) return {};
  return {[call = std::move(call)](int calls) {
            const double start = now();
            for (int i = 0; i < calls; ++i) call();
            return now() - start;
          },
          {}};
}

std::vector<Timing> measure_alternating(std::span<const std::function<void()>> calls, const TimingOptions& options) {
  std::vector<Subject> subjects;
  for (const auto& call : calls) subjects.push_back(on_host(call));
  return measure_alternating(std::span<const Subject>(subjects), options);
}

std::vector<Timing> measure_alternating(std::span<const Subject> subjects, const TimingOptions& options) {
  check(subjects, options);
  const bool host_flush = std::any_of(subjects.begin(), subjects.end(), [](const Subject& s) { return !s.flush; });
  std::optional<CacheFlusher> flusher;
  if (options.cache == Cache::cold && host_flush) flusher.emplace(options.flush_bytes);

  std::vector<Series> all;
  for (const Subject& subject : subjects) {
    all.push_back(Series{.subject = &subject, .samples = {}});
    warm_up(all.back(), options);
  }
  for (bool took = true; took;) {
    took = false;
    for (Series& series : all) {
      if (!series.wants_more(options)) continue;
      take_sample(series, options, all.size() == 1, flusher ? &*flusher : nullptr);
      took = true;
    }
  }
  std::vector<Timing> timings;
  for (Series& series : all) timings.push_back(summarize(std::move(series.samples), series.calls_per_run));
  return timings;
}

Timing measure(const std::function<void()>& call, const TimingOptions& options) {
  const Subject subject = on_host(call);
  return measure_alternating(std::span(&subject, 1), options).front();
}

}  // namespace gable::perf
