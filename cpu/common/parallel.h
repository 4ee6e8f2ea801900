// Spreads independent work units over an explicit number of OpenMP threads. One thread never enters a parallel region.
// Each thread starts with its own share of neighbouring units, the same in every run. The lines that it writes are then
// still in its caches from the previous run, and two threads write near each other only at the ends of shares. A thread
// that has finished its share takes units that other threads have left, so a thread that the machine slows down
// computes fewer.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

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

  std::int64_t first(int share) const { return units_ * share / count_; }
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

}  // namespace gable::cpu
