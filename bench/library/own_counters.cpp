// See own_counters.h.
#include "bench/library/own_counters.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "perfcounters/sources/cupti_source.h"
#include "perfcounters/sources/perf_event.h"

namespace gable::bench {
namespace {

constexpr double kSecondsLimit = 60;  // of a process for one workload, which no source here starts

std::vector<std::unique_ptr<perf::CounterSource>> sources_of(bool on_gpu) {
  std::vector<std::unique_ptr<perf::CounterSource>> sources;
  if (on_gpu) {
    sources.push_back(std::make_unique<perf::CuptiSource>());
  } else {
    sources.push_back(std::make_unique<perf::PerfEventSource>());
  }
  return sources;
}

CounterMode mode_of(CounterUse use) {
  return use == CounterUse::counter ? CounterMode::counter : CounterMode::automatic;
}

using Opened = std::map<std::pair<CounterUse, bool>, std::unique_ptr<OwnCounters>>;

Opened& opened() {
  static Opened all;
  return all;
}

}  // namespace

OwnCounters::OwnCounters(CounterUse use, bool on_gpu)
    : on_gpu_(on_gpu), rows_(mode_of(use), sources_of(on_gpu), kSecondsLimit) {}

void OwnCounters::require(const std::string& callable) const {
  const std::string why = rows_.missing_sources({on_gpu_ ? DeviceKind::gpu : DeviceKind::cpu});
  if (why.empty()) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("measure '{}': .counters is CounterUse::counter, and no counter works "
                          "here{}\n  CounterUse::automatic takes declared values then",
                          callable, why));
}

std::string OwnCounters::calibration(const std::string& source, perf::Metric metric) const {
  int passed = 0;
  int all = 0;
  const CountersEntry entry = rows_.entry().value();
  for (const CounterSourceEntry& one : entry.sources) {
    if (one.status.name != source) continue;
    for (const perf::CalibrationCheck& check : one.checks) {
      all += check.metric == metric ? 1 : 0;
      passed += check.metric == metric && check.passed ? 1 : 0;
    }
  }
  return fmt::format("{} of {} checks with known work passed", passed, all);
}

std::string OwnCounters::unavailable(perf::Metric metric) const {
  std::string text;
  const CountersEntry entry = rows_.entry().value();
  for (const CounterSourceEntry& one : entry.sources) {
    const perf::Ability able = perf::ability(one.status, metric);
    if (!able.available) text += fmt::format("{}: {}; ", one.status.name, able.reason);
  }
  if (on_gpu_ || text.empty()) return text.substr(0, text.size() - std::min<std::size_t>(2, text.size()));
  return text +
         "callgrind: it simulates a process of its own, where a callable can't be started; `gable measure -- program` "
         "simulates a whole program, and each measured callable as a region";
}

OwnCounters& own_counters(CounterUse use, bool on_gpu) {
  std::unique_ptr<OwnCounters>& one = opened()[{use, on_gpu}];
  if (!one) one = std::make_unique<OwnCounters>(use, on_gpu);
  return *one;
}

std::optional<CountersEntry> opened_counters() {
  std::optional<CountersEntry> all;
  for (const auto& [key, counters] : opened()) {
    CountersEntry entry = counters->rows().entry().value();
    if (!all) {
      all = std::move(entry);
    } else {
      std::move(entry.sources.begin(), entry.sources.end(), std::back_inserter(all->sources));
    }
  }
  return all;
}

}  // namespace gable::bench
