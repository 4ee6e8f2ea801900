// The plugin's entry and its implementation of perfcounters/sources/gpu_profiler.h.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "perfcounters/cupti/activity_recorder.h"
#include "perfcounters/cupti/host.h"
#include "perfcounters/cupti/known_kernels.h"
#include "perfcounters/cupti/library.h"
#include "perfcounters/cupti/range_counter.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

using perf::Counted;
using perf::CountRequest;
using perf::GpuProfilerError;

/// "dram__bytes_read.sum" -> "dram__bytes_read".
std::string base_of(const std::string& metric) { return metric.substr(0, metric.find('.')); }

/// The metrics by kind, each with its index in the request.
struct Sort {
  std::vector<std::string> metrics;
  std::vector<std::size_t> places;
};

Sort of_sort(const std::vector<std::string>& metrics, bool sass) {
  Sort sort;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    if (is_sass(metrics[i]) != sass) continue;
    sort.metrics.push_back(metrics[i]);
    sort.places.push_back(i);
  }
  return sort;
}

void merge(const Counted& part, const Sort& sort, std::size_t metrics, Counted& whole) {
  whole.passes += part.passes;
  if (whole.ranges.empty()) whole.ranges.resize(part.ranges.size(), std::vector<double>(metrics));
  if (whole.ranges.size() != part.ranges.size()) {
    throw GpuProfilerError(perf::kUntrusted, "one pass saw " + std::to_string(whole.ranges.size()) +
                                                 " kernels and another " + std::to_string(part.ranges.size()) +
                                                 ": the work is not the same each time");
  }
  for (std::size_t r = 0; r < part.ranges.size(); ++r) {
    for (std::size_t m = 0; m < sort.places.size(); ++m) whole.ranges[r][sort.places[m]] = part.ranges[r][m];
  }
}

class Profiler final : public perf::GpuProfiler {
 public:
  std::string library() const override { return functions().name; }

  std::string chip(int gpu) override { return chip_of(gpu); }

  void try_counting(int gpu) override {
    const std::lock_guard lock(mutex_);
    arm_and_disarm(gpu);
  }

  std::vector<std::string> available(const std::string& chip, const std::vector<std::string>& metrics) override {
    const std::set<std::string>& known = metrics_of(chip);
    std::vector<std::string> kept;
    std::copy_if(metrics.begin(), metrics.end(), std::back_inserter(kept),
                 [&](const std::string& metric) { return known.contains(base_of(metric)); });
    return kept;
  }

  int passes(const std::string& chip, const std::vector<std::string>& metrics) override {
    require(chip, metrics);
    std::size_t sum = 0;
    for (const bool sass : {false, true}) {
      const Sort sort = of_sort(metrics, sass);
      if (!sort.metrics.empty()) sum += metric_set(chip, sort.metrics).passes();
    }
    return static_cast<int>(sum);
  }

  Counted count(int gpu, const CountRequest& request) override {
    const std::lock_guard lock(mutex_);
    // A trace adds instructions to each kernel and zeroes the counts of instrumented code.
    if (tracing_) throw GpuProfilerError(perf::kWrongOrder, "counting while a trace runs");
    const std::string chip = chip_of(gpu);
    require(chip, request.metrics);
    Counted whole;
    for (const bool sass :
         {false, true}) {  // separate passes: instrumented code slows the kernel that the hardware counts
      const Sort sort = of_sort(request.metrics, sass);
      if (sort.metrics.empty()) continue;
      merge(count_ranges(gpu, metric_set(chip, sort.metrics), request), sort, request.metrics.size(), whole);
    }
    return whole;
  }

  void start_trace() override {
    const std::lock_guard lock(mutex_);
    if (tracing_) throw GpuProfilerError(perf::kWrongOrder, "a trace runs already");
    start_recording();
    tracing_ = true;
  }

  std::vector<perf::Activity> stop_trace() override {
    const std::lock_guard lock(mutex_);
    if (!tracing_) throw GpuProfilerError(perf::kWrongOrder, "no trace runs");
    tracing_ = false;
    return stop_recording();
  }

  std::vector<perf::KnownWork> known_work(int gpu) override { return cupti::known_work(gpu); }

 private:
  const std::set<std::string>& metrics_of(const std::string& chip) {
    const std::lock_guard lock(metrics_mutex_);
    std::set<std::string>& known = metrics_[chip];
    if (known.empty()) {
      const std::vector<std::string> names = Host(chip).base_metrics();
      known.insert(names.begin(), names.end());
    }
    return known;
  }

  /// Kept, since studies count the same metrics row after row.
  const MetricSet& metric_set(const std::string& chip, const std::vector<std::string>& metrics) {
    const std::lock_guard lock(metrics_mutex_);
    std::unique_ptr<MetricSet>& found = sets_[{chip, metrics}];
    if (!found) found = std::make_unique<MetricSet>(chip, metrics);
    return *found;
  }

  /// One unknown metric makes CUPTI's call fail for all, without naming the metric.
  void require(const std::string& chip, const std::vector<std::string>& metrics) {
    if (metrics.empty()) throw GpuProfilerError(perf::kNoMetric, "no metric was asked for");
    const std::set<std::string>& known = metrics_of(chip);
    for (const std::string& metric : metrics) {
      if (!known.contains(base_of(metric))) {
        throw GpuProfilerError(perf::kNoMetric, "chip " + chip + " has no metric " + metric);
      }
    }
  }

  std::mutex mutex_;
  bool tracing_ = false;
  std::mutex metrics_mutex_;
  std::map<std::string, std::set<std::string>> metrics_;
  std::map<std::pair<std::string, std::vector<std::string>>, std::unique_ptr<MetricSet>> sets_;
};

}  // namespace
}  // namespace gable::cupti

extern "C" __attribute__((visibility("default"))) const gable::perf::GpuProfilerEntry* gable_cupti_plugin() {
  static constexpr gable::perf::GpuProfilerEntry entry{
      GABLE_EXACT_VERSION, []() -> gable::perf::GpuProfiler* { return new gable::cupti::Profiler(); }};
  return &entry;
}
