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

// Both are counted in one pass on Ampere, Hopper and Blackwell.
const std::vector<std::string> kGraphMetrics{perf::kHardwareInstructions, kBlocks, "dram__bytes_read.sum",
                                             "dram__bytes_write.sum"};

std::vector<std::string> traffic_metrics() {
  std::vector<std::string> metrics{perf::kHardwareInstructions, kBlocks};
  append_metrics(perf::gpu_traffic_terms(perf::Metric::dram_bytes), metrics);
  append_metrics(perf::gpu_traffic_terms(perf::Metric::l2_bytes), metrics);
  return metrics;
}

constexpr std::size_t kTrafficRoom = 512, kWorkRoom = 128;  // launches that are counted before the counts are fetched

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

/// Null without metrics beside kBlocks.
std::unique_ptr<MetricSet> make_set(const std::string& chip, std::vector<std::string> metrics) {
  if (std::all_of(metrics.begin(), metrics.end(), [](const std::string& m) { return m == kBlocks; })) return nullptr;
  return std::make_unique<MetricSet>(chip, std::move(metrics));
}

/// Without names that the chip lacks: one of them would make CUPTI refuse all.
std::vector<std::string> available(const std::string& chip, const std::vector<std::string>& metrics) {
  const std::vector<std::string> names = Host(chip).base_metrics();
  const std::set<std::string> known(names.begin(), names.end());
  std::vector<std::string> kept;
  std::copy_if(metrics.begin(), metrics.end(), std::back_inserter(kept),
               [&](const std::string& metric) { return known.contains(metric.substr(0, metric.find('.'))); });
  return kept;
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

CountedContext::CountedContext(CUcontext context, const std::vector<std::string>& metrics)
    : context_(context), gpu_(gpu_of(context)), gpu_name_(name_of(gpu_)) {
  const std::string chip = chip_of(gpu_);
  const std::vector<std::string> known = available(chip, metrics);
  if (known.empty()) throw perf::GpuProfilerError(perf::kNoMetric, "chip " + chip + " has none of the metrics");
  std::vector<std::string> traffic, work;
  for (const std::string& metric : known) {
    if (contains(traffic_metrics(), metric)) traffic.push_back(metric);
    if (!contains(traffic_metrics(), metric) || metric == kBlocks) work.push_back(metric);
  }
  traffic_ = make_set(chip, std::move(traffic));
  work_ = make_set(chip, std::move(work));
  graph_ = make_set(chip, available(chip, kGraphMetrics));
}

const MetricSet* CountedContext::set_for(Armed what) const {
  switch (what) {
    case Armed::for_traffic:
      return traffic_.get();
    case Armed::for_work:
      return work_.get();
    case Armed::for_graph:
      return graph_.get();
    default:
      return nullptr;
  }
}

bool CountedContext::can(Armed what) const { return set_for(what) != nullptr; }

void CountedContext::arm(Armed what) {
  const MetricSet& set = *set_for(what);
  const MadeCurrent current(context_);
  check(driver().synchronize(), "cuCtxSynchronize");
  // A profiler keeps the kind of ranges and replay that it was configured for first.
  if (last_ != what) profiler_.reset();
  if (!profiler_) profiler_ = std::make_unique<RangeProfiler>(context_);
  last_ = what;
  const bool graph = what == Armed::for_graph;
  room = graph ? 1 : what == Armed::for_traffic ? kTrafficRoom : kWorkRoom;
  idle = 0;
  counters_ = profiler_->counter_image(set.metrics(), room);
  profiler_->configure(
      set.config(), counters_,
      {graph ? CUPTI_UserRange : CUPTI_AutoRange, set.passes() == 1 ? CUPTI_UserReplay : CUPTI_KernelReplay}, room);
  profiler_->start();
  armed_ = what;
  if (graph) profiler_->push("graph");
}

std::vector<std::map<std::string, double>> CountedContext::disarm() {
  const bool graph = armed_ == Armed::for_graph;
  const MetricSet& set = *set_for(armed_);
  armed_ = Armed::no;
  const MadeCurrent current(context_);
  check(driver().synchronize(), "cuCtxSynchronize");
  if (graph) profiler_->pop();
  if (!profiler_->stop()) throw perf::GpuProfilerError(perf::kUntrusted, "CUPTI wants more passes than it planned");
  const std::size_t ranges = profiler_->decode(counters_);
  std::vector<std::map<std::string, double>> values;
  for (std::size_t range = 0; range < ranges; ++range) {
    const std::vector<double> all = set.values(counters_, range);
    std::map<std::string, double>& named = values.emplace_back();
    for (std::size_t i = 0; i < all.size(); ++i) named[set.metrics()[i]] = all[i];
  }
  return values;
}

void CountedContext::abandon() {
  armed_ = Armed::no;
  profiler_.reset();
}

}  // namespace gable::cupti
