// Spreads independent work units over an explicit number of OpenMP threads. One thread never enters a parallel region.
// Each thread starts with its own share of neighbouring units, the same in every run. The lines that it writes are then
// still in its caches from the previous run, and two threads write near each other only at the ends of shares. A thread
// that has finished its share takes units that other threads have left, so a thread that the machine slows down
// computes fewer. In short runs it mostly does not: what it took, with its lines, would go from cache to cache in every
// run, and so do the counters of shares.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "cpu/common/tiling.h"

namespace gable::cpu {

/// The shares of all threads; with more than kMost threads, several threads use one share.
class UnitShares {
 public:
  static constexpr int kMost = 64;

  UnitShares(int threads, std::int64_t units) : count_(std::min(threads, kMost)), units_(units) {
    for (int share = 0; share < count_; ++share) next(share).store(first(share), std::memory_order_relaxed);
  }

  /// Calls work(unit) for the units of the thread's share, then for the units that are left of other shares.
  template <class Work>
  void run(int thread, const Work& work) {
    for (int i = 0; i < count_; ++i) {
      const int share = (thread + i) % count_;
      const std::int64_t end = first(share + 1);
      while (next(share).load(std::memory_order_relaxed) < end) {
        const std::int64_t unit = next(share).fetch_add(1, std::memory_order_relaxed);
        if (unit < end) work(unit);
      }
    }
  }

 private:
  struct alignas(64) Counter {  // a cache line
    std::atomic<std::int64_t> next;
  };

  std::int64_t first(int share) const { return first_of_share(units_, share, count_); }
  std::atomic<std::int64_t>& next(int share) { return counters_[static_cast<std::size_t>(share)].next; }

  std::array<Counter, kMost> counters_;
  int count_;
  std::int64_t units_;
};

/// Calls work(unit, thread) for every unit in [0, units), thread in [0, threads). `work` must not throw.
template <class Work>
void parallel_units(int threads, std::int64_t units, const Work& work) {
  if (threads <= 1 || units <= 1) {
    for (std::int64_t unit = 0; unit < units; ++unit) work(unit, 0);
    return;
  }
  UnitShares shares(threads, units);
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
    shares.run(thread, [&](std::int64_t unit) { work(unit, thread); });
  }
}

/// How long runs of a plan took, which decides whether its threads take units from each other: not in short runs,
/// unless these become faster by it, as where shares are uneven. Both ways are tried again and again, a few runs in a
/// row, since the first run of a row finds lines in the caches where the other way has left them.
class RunTimes {
 public:
  using Clock = std::chrono::steady_clock;

  /// Whether the threads should keep to their shares in the next run.
  bool keeps_shares() const {
    if (run_ < kTries) return false;
    if (taking_ >= kShort) return false;
    return run_ < 2 * kTries || keeping_ < taking_;
  }
  /// How long the next run took.
  void add(Clock::duration duration) {
    if (run_ == 0) taking_ = keeping_ = Clock::duration::max();
    if (run_ < 2 * kTries) {
      Clock::duration& least = keeps_shares() ? keeping_ : taking_;
      least = std::min(least, duration);
    }
    run_ = (run_ + 1) % kRuns;
  }

 private:
  /// With eight threads of a Xeon both ways take the same time beyond.
  static constexpr Clock::duration kShort = std::chrono::microseconds(25);
  static constexpr int kTries = 4, kRuns = 256;

  Clock::duration taking_{}, keeping_{};  // the least of the tries
  int run_ = 0;                           // of kRuns, of which the first are tries
};

/// Calls work(unit, thread) for every unit, each thread for its own share alone.
template <class Work>
void parallel_shares(int threads, std::int64_t units, const Work& work) {
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num(), team = omp_get_num_threads();
    const std::int64_t end = first_of_share(units, thread + 1, team);
    for (std::int64_t unit = first_of_share(units, thread, team); unit < end; ++unit) work(unit, thread);
  }
}

/// parallel_units() of a plan that is run again and again.
template <class Work>
void parallel_units(int threads, std::int64_t units, RunTimes& times, const Work& work) {
  if (threads <= 1 || units <= 1) return parallel_units(threads, units, work);
  const RunTimes::Clock::time_point start = RunTimes::Clock::now();
  if (times.keeps_shares()) {
    parallel_shares(threads, units, work);
  } else {
    parallel_units(threads, units, work);
  }
  times.add(RunTimes::Clock::now() - start);
}

}  // namespace gable::cpu
