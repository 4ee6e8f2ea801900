// See counted_context.h.
#include "perfcounters/cupti/injection/counted_context.h"

#include <algorithm>
#include <set>

#include "perfcounters/cupti/context.h"
#include "perfcounters/cupti/range_counter.h"
#include "perfcounters/sources/gpu_metrics.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

// Counted in one pass on Ampere, Hopper and Blackwell.
const std::vector<std::string> kGraphMetrics{perf::kHardwareInstructions, kBlocks, "dram__bytes_read.sum",
                                             "dram__bytes_write.sum"};

/// Without names that the chip lacks: one of them would make CUPTI refuse all.
std::vector<std::string> available(const std::string& chip, const std::vector<std::string>& metrics) {
  const std::vector<std::string> names = Host(chip).base_metrics();
  const std::set<std::string> known(names.begin(), names.end());
  std::vector<std::string> kept;
  std::copy_if(metrics.begin(), metrics.end(), std::back_inserter(kept),
               [&](const std::string& metric) { return known.contains(metric.substr(0, metric.find('.'))); });
  return kept;
}

std::vector<std::uint8_t> config_of(Host& host, const std::vector<std::string>& metrics) {
  host.add(metrics);
  return host.config_image();
}

std::string name_of(int gpu) {
  char name[256] = "";
  check(driver().device_name(name, sizeof name, device_of(gpu)), "cuDeviceGetName");
  return name;
}

int gpu_of(CUcontext context) {
  std::uint32_t device = 0;
  check(functions().device_id(context, &device), "cuptiGetDeviceId");
  return static_cast<int>(device);
}

}  // namespace

MadeCurrent::MadeCurrent(CUcontext context) { check(driver().push(context), "cuCtxPushCurrent"); }

MadeCurrent::~MadeCurrent() {
  CUcontext popped = nullptr;
  driver().pop(&popped);
}

MetricSet::MetricSet(const std::string& chip, std::vector<std::string> metrics)
    : metrics_(std::move(metrics)), host_(chip), config_(config_of(host_, metrics_)) {}

std::map<std::string, double> MetricSet::values(const std::vector<std::uint8_t>& counters, std::size_t range) const {
  const std::vector<double> values = host_.evaluate(counters, range, metrics_);
  std::map<std::string, double> named;
  for (std::size_t i = 0; i < metrics_.size(); ++i) named[metrics_[i]] = values[i];
  return named;
}

CountedContext::CountedContext(CUcontext context, const std::vector<std::string>& metrics)
    : context_(context), gpu_(gpu_of(context)), gpu_name_(name_of(gpu_)) {
  const std::string chip = chip_of(gpu_);
  const std::vector<std::string> known = available(chip, metrics);
  if (known.empty()) throw perf::GpuProfilerError(perf::kNoMetric, "chip " + chip + " has none of the metrics");
  launch_set_ = std::make_unique<MetricSet>(chip, known);
  graph_set_ = std::make_unique<MetricSet>(chip, available(chip, kGraphMetrics));
  profiler_ = std::make_unique<RangeProfiler>(context_);
}

void CountedContext::arm(const MetricSet& set, RangeMode mode, std::size_t ranges) {
  check(driver().synchronize(), "cuCtxSynchronize");
  counters_ = profiler_->counter_image(set.metrics(), ranges);
  profiler_->configure(set.config(), counters_, mode, ranges);
  profiler_->start();
}

void CountedContext::arm_for_launches(std::size_t ranges) {
  const MadeCurrent current(context_);
  arm(*launch_set_, {CUPTI_AutoRange, CUPTI_KernelReplay}, ranges);
  armed_ = Armed::for_launches;
  room = ranges;
  idle = 0;
}

void CountedContext::arm_for_graph() {
  const MadeCurrent current(context_);
  arm(*graph_set_, {CUPTI_UserRange, CUPTI_UserReplay}, 1);
  armed_ = Armed::for_graph;
  profiler_->push("graph");
}

std::vector<std::map<std::string, double>> CountedContext::disarm() {
  const bool graph = armed_ == Armed::for_graph;
  const MetricSet& set = graph ? *graph_set_ : *launch_set_;
  armed_ = Armed::no;
  const MadeCurrent current(context_);
  check(driver().synchronize(), "cuCtxSynchronize");
  if (graph) profiler_->pop();
  if (!profiler_->stop()) throw perf::GpuProfilerError(perf::kUntrusted, "CUPTI wants more passes than it planned");
  const std::size_t ranges = profiler_->decode(counters_);
  std::vector<std::map<std::string, double>> values;
  for (std::size_t i = 0; i < ranges; ++i) values.push_back(set.values(counters_, i));
  return values;
}

void CountedContext::abandon() {
  armed_ = Armed::no;
  profiler_.reset();
}

}  // namespace gable::cupti
