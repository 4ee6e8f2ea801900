// The measurement protocol for T: how often a call is run, and what is kept of it.
// Warm: warm-up, then repeated runs on one set of buffers. Cold: caches are flushed before each run, outside the timed
// region. Calls that are compared with each other are measured in turn (A B A B ...) in one process, because clock
// speed and neighbours drift over seconds: the ratio of two medians taken in turn is not affected by the drift.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace gable::perf {

enum class Cache { warm, cold };

/// Measured times of one call, in seconds per call.
struct Timing {
  double seconds = 0;           ///< median
  double q1 = 0;                ///< lower quartile
  double q3 = 0;                ///< upper quartile
  double fastest = 0;           ///< least sample
  int runs = 0;                 ///< number of samples
  int calls_per_run = 1;        ///< calls per sample; batched so that reading the clock costs < 1 %
  std::vector<double> samples;  ///< in the order in which they were taken
};

struct TimingOptions {
  Cache cache = Cache::warm;
  int warm_up_runs = 1;         ///< untimed calls before the first sample (the first of them also sizes the batch)
  int min_runs = 5;             ///< taken even where they exceed the budget
  int max_runs = 50;            ///< never exceeded
  double budget_seconds = 1.0;  ///< for each callable; sampling stops when it is spent
  double min_sample_seconds = 20e-6;  ///< warm only: shorter calls are batched to samples of this length
  /// Warm, several callables: calls shorter than this run once untimed before each sample, since other callables have
  /// used the caches in between.
  double rewarm_below_seconds = 0.05;
  std::size_t flush_bytes = 0;      ///< cold: bytes swept between runs; 0: twice this machine's caches
  std::function<double()> clock{};  ///< seconds, by which the budget is spent; empty: the host's steady clock
};

/// Median and quartiles (linear interpolation between order statistics) of `samples`, kept in their order.
/// Throws std::invalid_argument when `samples` is empty.
Timing summarize(std::vector<double> samples, int calls_per_run = 1);

/// The `fraction` quantile (0 ... 1) of a sorted, non-empty list, interpolated linearly.
double quantile(std::span<const double> sorted, double fraction);
/// Of a non-empty list in any order.
double median(std::vector<double> values);

/// Evicts the caches of the cores that OpenMP's threads run on by reading a buffer larger than the last level.
/// It reads only: lines left dirty by a sweep would be written back inside the next timed region.
class CacheFlusher {
 public:
  explicit CacheFlusher(std::size_t bytes = 0);  ///< 0: twice this machine's caches
  void flush();
  std::size_t bytes() const { return buffer_.size() * sizeof(buffer_[0]); }

 private:
  std::vector<unsigned long long> buffer_;
  unsigned long long sink_ = 0;
};

/// flush() of a CacheFlusher that is made at the first call.
std::function<void()> sweep_caches();

/// A timed call with its own clock, for asynchronous work of a device, which the host's clock can't time.
struct Subject {
  std::function<double(int calls)> time;  ///< runs `calls` calls back to back and returns their total seconds
  std::function<void()> flush;            ///< cold: evicts the caches before the next call; empty: CacheFlusher
};

/// A synchronous call, timed by the host's steady clock.
Subject on_host(std::function<void()> call);

/// T of one call. Throws std::invalid_argument for an empty callable or for options that contradict themselves.
Timing measure(const std::function<void()>& call, const TimingOptions& options = {});

/// T of several calls, measured in turn; results in the order of `calls`. A callable takes part until it has max_runs
/// samples, or min_runs samples and its budget is spent.
std::vector<Timing> measure_alternating(std::span<const std::function<void()>> calls,
                                        const TimingOptions& options = {});
std::vector<Timing> measure_alternating(std::span<const Subject> subjects, const TimingOptions& options = {});

}  // namespace gable::perf
