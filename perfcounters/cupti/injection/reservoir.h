// Sum, extremes and quartiles of many durations in little space: the quartiles are of a uniform sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "perfcounters/program/session.h"

namespace gable::cupti {

class Reservoir {
 public:
  void add(double seconds) {
    ++calls_;
    sum_ += seconds;
    least_ = calls_ == 1 ? seconds : std::min(least_, seconds);
    most_ = std::max(most_, seconds);
    if (sample_.size() < kMost) {
      sample_.push_back(static_cast<float>(seconds));
      return;
    }
    // Algorithm R: each call stays with the same probability.
    const std::uint64_t place = random() % static_cast<std::uint64_t>(calls_);
    if (place < kMost) sample_[place] = static_cast<float>(seconds);
  }

  perf::CallTimes times() const {
    std::vector<float> sorted = sample_;
    std::sort(sorted.begin(), sorted.end());
    return {calls_, sum_, quantile(sorted, 0.5), quantile(sorted, 0.25), quantile(sorted, 0.75), least_, most_};
  }

 private:
  static constexpr std::size_t kMost = 2048;

  static double quantile(const std::vector<float>& sorted, double part) {
    if (sorted.empty()) return 0;
    const double place = part * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    const double share = place - static_cast<double>(low);
    return static_cast<double>(sorted[low]) * (1 - share) + static_cast<double>(sorted[high]) * share;
  }

  /// xorshift64: the sample must not beat with the program's loops.
  std::uint64_t random() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

  std::int64_t calls_ = 0;
  double sum_ = 0, least_ = 0, most_ = 0;
  std::vector<float> sample_;
  std::uint64_t state_ = 0x9e3779b97f4a7c15;
};

}  // namespace gable::cupti
