// CUPTI's host half: the metrics of a chip, the number of passes for a set of metrics, the configuration that arms the
// counters, and the decoded values. It needs neither a GPU nor a driver.
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

  /// The names, without rollups, of all metrics of the chip.
  std::vector<std::string> base_metrics() const;
  /// Adds metrics to count. If the chip lacks one of them, all fail, so check with base_metrics() first.
  void add(const std::vector<std::string>& metrics);
  /// The configuration for all metrics that were added.
  std::vector<std::uint8_t> config_image() const;
  /// The values of `metrics` in one range of a decoded counter image. An index beyond its ranges gives garbage.
  std::vector<double> evaluate(std::span<const std::uint8_t> image, std::size_t range,
                               const std::vector<std::string>& metrics) const;

 private:
  CUpti_Profiler_Host_Object* object_ = nullptr;
};

/// Metrics that are counted together. Making one takes CUPTI longer than counting a short kernel.
class MetricSet {
 public:
  /// As Host() and Host::add().
  MetricSet(const std::string& chip, std::vector<std::string> metrics);

  const std::vector<std::string>& metrics() const { return metrics_; }
  /// What arms the counters.
  const std::vector<std::uint8_t>& config() const { return config_; }
  /// How often the work runs.
  std::size_t passes() const { return passes_; }
  /// In the order of metrics(); as Host::evaluate().
  std::vector<double> values(std::span<const std::uint8_t> image, std::size_t range) const;

 private:
  std::vector<std::string> metrics_;
  Host host_;
  std::vector<std::uint8_t> config_;
  std::size_t passes_ = 0;
};

/// The names as CUPTI takes them.
std::vector<const char*> pointers(const std::vector<std::string>& names);

/// True for metrics that instrumented code counts instead of hardware: such a pass is up to 24 times slower and counts
/// nothing inside CUDA graphs.
bool is_sass(const std::string& metric);

}  // namespace gable::cupti
