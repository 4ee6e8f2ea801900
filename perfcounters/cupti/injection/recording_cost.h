// What recording its kernels costs a program, beside the time that passes. On an H200 and its host a launch takes 1 us
// longer, a kernel 0.2 us, and up to 0.075 ns for each of its blocks, which run CUPTI's instructions (kernels that only
// read and write memory: 262144 blocks take 220 instead of 200 us).
#pragma once

#include <atomic>
#include <cstdint>

namespace gable::cupti {

/// What one launch starts.
struct Launched {
  std::int64_t kernels = 1;  ///< those of a CUDA graph
  std::int64_t blocks = 0;   ///< of all of them
};

class RecordingCost {
 public:
  /// Adds a launch. `now` gives nanoseconds, and is asked seldom. Whether recording has become too costly: its cost
  /// since it was last asked is more than kMostPart of the time. Thread-safe.
  template <typename Clock>
  bool add(const Launched& launched, const Clock& now) {
    const std::int64_t cost = kLaunch + kKernel * launched.kernels + kThousandBlocks * launched.blocks / 1000;
    const std::int64_t before = cost_.fetch_add(cost, std::memory_order_relaxed);
    if (before / kPause == (before + cost) / kPause && before > 0) return false;
    const std::int64_t time = now();
    const std::int64_t then = since_.exchange(time), paid = paid_.exchange(before + cost);
    if (before == 0) return false;  // the first launch
    return static_cast<double>(before + cost - paid) > kMostPart * static_cast<double>(time - then);
  }

  static constexpr double kMostPart = 0.02;

 private:
  static constexpr std::int64_t kLaunch = 800, kKernel = 200, kThousandBlocks = 75;  // nanoseconds
  static constexpr std::int64_t kPause = 2'000'000;  // a short burst of launches is recorded
  std::atomic<std::int64_t> cost_{0}, since_{0}, paid_{0};
};

}  // namespace gable::cupti
