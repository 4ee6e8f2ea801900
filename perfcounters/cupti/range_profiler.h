// CUPTI's range profiler on one context. The order of calls matters to CUPTI, which crashes (Start without SetConfig)
// or spoils what it decodes (two Starts) instead of saying so; the classes that use this (range_counter, and
// injection/kernel_counter) keep to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perfcounters/cupti/library.h"

namespace gable::cupti {

/// How work is cut into ranges and how often it runs.
struct RangeMode {
  CUpti_ProfilerRange range = CUPTI_UserRange;
  CUpti_ProfilerReplayMode replay = CUPTI_UserReplay;
};

/// Enables the range profiler on a context; the destructor disables it.
class RangeProfiler {
 public:
  explicit RangeProfiler(CUcontext context);
  ~RangeProfiler();
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;

  /// An image with room for the counts of so many ranges.
  std::vector<std::uint8_t> counter_image(const std::vector<std::string>& metrics, std::size_t ranges) const;
  /// Both images must live until decode().
  void configure(const std::vector<std::uint8_t>& config, std::vector<std::uint8_t>& counters, RangeMode mode,
                 std::size_t ranges);
  void start();
  /// Whether this was the last pass.
  bool stop();
  void push(const std::string& name);
  void pop();
  /// Decodes the counts into the image; returns the number of ranges. Throws if ranges were dropped.
  std::size_t decode(const std::vector<std::uint8_t>& counters);

 private:
  CUpti_RangeProfiler_Object* object_ = nullptr;
};

}  // namespace gable::cupti
