// See cupti_source.h.
#include "perfcounters/sources/cupti_source.h"

#include <algorithm>
#include <stdexcept>

#include "perfcounters/sources/gpu_metrics.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::perf {
namespace {

constexpr Metric kGiven[] = {Metric::flop, Metric::l1_bytes, Metric::l2_bytes, Metric::dram_bytes};

bool gives(Metric metric) { return std::find(std::begin(kGiven), std::end(kGiven), metric) != std::end(kGiven); }

std::span<const GpuTerm> terms_of(Metric metric) {
  return metric == Metric::flop ? gpu_work_terms() : gpu_traffic_terms(metric);
}

/// The CUPTI names of all requested metrics, including alternative names.
std::vector<std::string> metrics_for(const CountOptions& options) {
  std::vector<std::string> metrics;
  for (const Metric metric : options.metrics) {
    append_metrics(terms_of(metric), metrics);
    if (metric != Metric::flop) continue;
    metrics.emplace_back(kHardwareInstructions);
    metrics.emplace_back(kInstrumentedInstructions);
  }
  if (options.instructions || options.deep) append_metrics(gpu_instruction_terms(), metrics);
  if (options.deep) {
    append_metrics(gpu_stall_terms(), metrics);
  }
  return metrics;
}

PassPlan plan_for(GpuProfiler& profiler, const std::string& chip, const std::vector<std::string>& metrics) {
  const int passes = metrics.empty() ? 0 : profiler.passes(chip, metrics);
  return {passes, std::to_string(metrics.size()) + " metrics of " + chip + " in " + std::to_string(passes) +
                      " passes; instructions of each type are counted by instrumented code, in a pass of their own"};
}

GpuCounts counts_of(const std::vector<std::string>& metrics, const std::vector<double>& values) {
  GpuCounts counts;
  for (std::size_t i = 0; i < metrics.size(); ++i) counts[metrics[i]] = values[i];
  return counts;
}

Quantity quantity_of(Metric metric, const std::vector<GpuCounts>& repetitions) {
  if (!gives(metric)) {
    return {.reason = metric == Metric::l3_bytes ? "a GPU has no L3"
                                                 : "cupti does not count " + std::string(to_string(metric))};
  }
  std::vector<Quantity> each;
  for (const GpuCounts& counts : repetitions) {
    each.push_back(metric == Metric::flop ? gpu_work(counts) : weighted_sum(terms_of(metric), counts));
  }
  Quantity quantity = combine(each);
  if (metric == Metric::flop) quantity.note = "what was executed, with the padding of tiles";
  if (metric == Metric::dram_bytes) quantity.note = "of the whole GPU meanwhile; what stays dirty in L2 is not in it";
  return quantity;
}

std::map<std::string, double> extra_of(const CountOptions& options, const GpuCounts& counts) {
  std::map<std::string, double> extra;
  for (const Metric metric : options.metrics) extra.merge(gpu_parts(terms_of(metric), counts));
  if (options.deep) {
    extra.merge(gpu_parts(gpu_instruction_terms(), counts));
    for (const auto& [part, value] : gpu_parts(gpu_stall_terms(), counts)) extra["stalled: " + part] = value;
  }
  return extra;
}

/// Runs before each counted run: restores the inputs, flushes the caches.
std::function<void()> before_run(const Workload& workload) {
  if (!workload.restore && !workload.flush) return {};
  return [&workload] {
    if (workload.restore) workload.restore();
    if (workload.flush) workload.flush();
  };
}

SourceStatus try_source() {
  SourceStatus status{"cupti", false, "W, Q(dram), Q(l2) and Q(l1) on NVIDIA GPUs", "", ""};
  std::string conditions;
  try {
    GpuProfiler& profiler = gpu_profiler();
    profiler.try_counting(0);
    status.available = true;
    conditions = profiler.library() + " on " + profiler.chip(0);
  } catch (const GpuProfilerError& error) {
    GpuFailure failure = explain_gpu_failure(error.code(), error.what());
    status.reason = std::move(failure.reason);
    status.cure = std::move(failure.cure);
  }
  for (const Metric metric : kGiven) {
    status.abilities.push_back({metric, status.available, status.available ? conditions : status.reason, status.cure});
  }
  return status;
}

Reading refused(const CountOptions& options, const GpuProfilerError& error) {
  const GpuFailure failure = explain_gpu_failure(error.code(), error.what());
  Reading reading;
  reading.source = "cupti";
  for (const Metric metric : options.metrics) reading.quantities[metric] = {.reason = failure.reason};
  return reading;
}

}  // namespace

SourceStatus CuptiSource::status() const {
  if (!status_) status_ = try_source();
  return *status_;
}

PassPlan CuptiSource::prepare(const CountOptions& options) {
  try {
    GpuProfiler& profiler = gpu_profiler();
    const std::string chip = profiler.chip(0);
    return plan_for(profiler, chip, profiler.available(chip, metrics_for(options)));
  } catch (const GpuProfilerError& error) {
    return {0, explain_gpu_failure(error.code(), error.what()).reason};
  }
}

Reading CuptiSource::measure(const Workload& workload, const CountOptions& options) {
  if (!workload.run) throw std::invalid_argument("cupti counts around a call: the workload has no run");
  if (workload.gpu < 0) throw std::invalid_argument("cupti counts work on a GPU: the workload runs on the host");
  try {
    GpuProfiler& profiler = gpu_profiler();
    const std::string chip = profiler.chip(workload.gpu);
    const std::vector<std::string> metrics = profiler.available(chip, metrics_for(options));
    Reading reading;
    reading.source = name();
    reading.plan = plan_for(profiler, chip, metrics);
    std::vector<GpuCounts> repetitions;
    if (!metrics.empty()) {
      workload.run();
      const Counted counted = profiler.count(workload.gpu, {.metrics = metrics,
                                                            .run = workload.run,
                                                            .before = before_run(workload),
                                                            .repetitions = std::max(1, options.repetitions)});
      for (const auto& values : counted.ranges) repetitions.push_back(counts_of(metrics, values));
      reading.extra = extra_of(options, repetitions.back());
      if (options.instructions) reading.instructions = gpu_instructions(repetitions.back());
    }
    for (const Metric metric : options.metrics) reading.quantities[metric] = quantity_of(metric, repetitions);
    return reading;
  } catch (const GpuProfilerError& error) {
    return refused(options, error);
  }
}

std::vector<KnownWork> CuptiSource::known_work() const {
  try {
    return gpu_profiler().known_work(0);
  } catch (const GpuProfilerError&) {
    return {};  // status() has the reason
  }
}

}  // namespace gable::perf
