// Names, summaries and defaults of sources, the list of all sources, and probes of sources without a class of their
// own.
#include "perfcounters/sources/source.h"

#include <algorithm>
#include <array>
#include <string>

#include "perfcounters/sources/callgrind.h"
#include "perfcounters/sources/cupti_source.h"
#include "perfcounters/sources/pcm.h"
#include "perfcounters/sources/perf_event.h"
#include "perfcounters/timing.h"

namespace gable::perf {
namespace {

SourceStatus clock_status() { return {"steady_clock", true, "T of CPU work", "", ""}; }

SourceStatus analytic_status() { return {"analytic", true, "W (exact) and the least Q, from the shapes", "", ""}; }

}  // namespace

const char* to_string(Metric metric) {
  constexpr std::array kNames{"W", "Q(l1)", "Q(l2)", "Q(l3)", "Q(dram)", "T"};
  return kNames.at(static_cast<std::size_t>(metric));
}

const char* to_string(Provenance provenance) {
  constexpr std::array kNames{"counter", "simulated", "analytic"};
  return kNames.at(static_cast<std::size_t>(provenance));
}

Ability ability(const SourceStatus& status, Metric metric) {
  for (const Ability& one : status.abilities)
    if (one.metric == metric) return one;
  return {metric, false, status.name + " does not know of " + to_string(metric), ""};
}

Quantity combine(const std::vector<Quantity>& repetitions) {
  std::vector<double> values;
  for (const Quantity& one : repetitions) {
    if (!one.value) return one;
    values.push_back(*one.value);
  }
  if (values.empty()) return {.reason = "there was no repetition"};
  std::sort(values.begin(), values.end());
  Quantity all = repetitions.front();
  all.value = quantile(values, 0.5);
  all.q1 = quantile(values, 0.25);
  all.q3 = quantile(values, 0.75);
  all.repetitions = static_cast<int>(values.size());
  return all;
}

Quantity Reading::at(Metric metric) const {
  const auto found = quantities.find(metric);
  if (found != quantities.end()) return found->second;
  return {.reason = std::string(to_string(metric)) + " was not asked for"};
}

PassPlan CounterSource::prepare(const CountOptions&) { return {1, "every quantity is counted in one run"}; }

std::vector<std::unique_ptr<CounterSource>> open_counter_sources(const std::string& helper) {
  std::vector<std::unique_ptr<CounterSource>> sources;
  sources.push_back(std::make_unique<PerfEventSource>());
  sources.push_back(std::make_unique<PcmSource>(describe_machine(), helper));
  sources.push_back(std::make_unique<CallgrindSource>(read_cache_geometries(), helper));
  sources.push_back(std::make_unique<CuptiSource>());
  return sources;
}

std::vector<SourceStatus> counter_sources() {
  std::vector<SourceStatus> all;
  for (const auto& source : open_counter_sources()) all.push_back(source->status());
  for (SourceStatus status : {analytic_status(), clock_status()}) all.push_back(std::move(status));
  return all;
}

}  // namespace gable::perf
