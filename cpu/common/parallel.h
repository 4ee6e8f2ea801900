// Spreads independent work units over an explicit number of OpenMP threads. One thread never enters a parallel region.
// Units are handed out one after another, so a thread that the machine slows down takes fewer of them.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdint>

namespace gable::cpu {

/// Calls work(unit, thread) for every unit in [0, units), thread in [0, threads). `work` must not throw.
template <class Work>
void parallel_units(int threads, std::int64_t units, const Work& work) {
  if (threads <= 1 || units <= 1) {
    for (std::int64_t unit = 0; unit < units; ++unit) work(unit, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
    for (std::int64_t unit = next.fetch_add(1, std::memory_order_relaxed); unit < units;
         unit = next.fetch_add(1, std::memory_order_relaxed)) {
      work(unit, thread);
    }
  }
}

}  // namespace gable::cpu
