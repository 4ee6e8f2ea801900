// CUPTI's host half: which metrics a chip has, in how many passes a set of them is counted, the configuration that
// arms the counters for it, and the values of what was counted. It needs neither a GPU nor a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perfcounters/cupti/library.h"

namespace gable::cupti {

class Host {
 public:
  /// Throws GpuProfilerError for a chip that CUPTI does not know.
  explicit Host(const std::string& chip);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// The names without rollups of everything that the chip counts.
  std::vector<std::string> base_metrics() const;
  /// Adds metrics to what is counted. One that the chip lacks fails them all, so ask base_metrics() first.
  void add(const std::vector<std::string>& metrics);
  /// Of all metrics added.
  std::vector<std::uint8_t> config_image() const;
  /// The values of `metrics` in one range of a decoded counter image. An index beyond its ranges gives garbage.
  std::vector<double> evaluate(std::span<const std::uint8_t> image, std::size_t range,
                               const std::vector<std::string>& metrics) const;

 private:
  CUpti_Profiler_Host_Object* object_ = nullptr;
};

/// Runs of the work that a configuration needs.
std::size_t passes(std::vector<std::uint8_t>& config_image);

/// As CUPTI takes them.
std::vector<const char*> pointers(const std::vector<std::string>& names);

/// Counted by instrumented code instead of by hardware: such a pass is up to 24 times slower, and sees nothing in CUDA
/// graphs.
bool is_sass(const std::string& metric);

}  // namespace gable::cupti
