// What recording its kernels costs a program, beside the time that passes. On an H200 and its host a launch takes 1 us
// longer, and a kernel 0.2 us.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gable::cupti {

class RecordingCost {
 public:
  /// Adds a launch of so many kernels (1, or those of a CUDA graph). `now` gives nanoseconds, and is asked seldom.
  /// Whether recording has become too dear: its cost since it was last asked is more than kMostPart of the time.
  /// Thread-safe.
  template <typename Clock>
  bool add(std::size_t kernels, const Clock& now) {
    const std::int64_t cost = kLaunch + kKernel * static_cast<std::int64_t>(kernels);
    const std::int64_t before = cost_.fetch_add(cost, std::memory_order_relaxed);
    if (before / kPause == (before + cost) / kPause && before > 0) return false;
    const std::int64_t time = now();
    const std::int64_t then = since_.exchange(time), paid = paid_.exchange(before + cost);
    if (before == 0) return false;  // the first launch
    return static_cast<double>(before + cost - paid) > kMostPart * static_cast<double>(time - then);
  }

  static constexpr double kMostPart = 0.02;

 private:
  static constexpr std::int64_t kLaunch = 800, kKernel = 200;  // nanoseconds
  static constexpr std::int64_t kPause = 2'000'000;            // a short burst of launches is recorded
  std::atomic<std::int64_t> cost_{0}, since_{0}, paid_{0};
};

}  // namespace gable::cupti
