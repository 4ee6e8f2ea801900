// See row_counters.h.
#include "bench/counting/row_counters.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

namespace gable::bench {
namespace {

using perf::Metric;
using Found = FoundQuantity;

const std::map<Metric, const char*>& cache_levels() {
  static const std::map<Metric, const char*> names{
      {Metric::l1_bytes, "l1"}, {Metric::l2_bytes, "l2"}, {Metric::l3_bytes, "l3"}};
  return names;
}

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

Quantity quantity_of(const Found& found, std::optional<double> analytic) {
  const perf::Quantity& q = found.quantity;
  Quantity quantity{.source = perf::to_string(found.source->provenance()),
                    .value = *q.value,
                    .analytic = analytic,
                    .by = found.source->name(),
                    .spread = {.q1 = q.q1, .q3 = q.q3, .repetitions = q.repetitions, .multiplex = q.multiplex},
                    .note = q.note};
  if (analytic && *analytic > 0) quantity.ratio = *q.value / *analytic;
  return quantity;
}

void set_work(const Found& found, Quantity& work) {
  if (found.quantity.value) {
    work = quantity_of(found, work.analytic);
  } else if (!found.reasons.empty()) {
    work.reason = joined(found.reasons);
  }
}

/// If the tensors stay in the caches from one warm run to the next, there is little or no traffic. An intensity
/// computed from it would be meaningless, and a record's bytes must be above zero, so such a row keeps the least
/// traffic.
bool is_resident(double bytes, double analytic) {
  constexpr double kNothing = 0.01;
  return bytes <= kNothing * analytic;
}

void set_dram_traffic(const Found& found, Quantity& dram) {
  const std::optional<double>& bytes = found.quantity.value;
  if (!bytes) {
    if (!found.reasons.empty()) dram.reason = joined(found.reasons);
  } else if (is_resident(*bytes, dram.analytic.value_or(0))) {
    dram.reason =
        fmt::format("{} read {:.0f} B: the tensors stay in the caches from run to run", found.source->name(), *bytes);
    dram.resident[perf::to_string(found.source->provenance())] = *bytes;
  } else {
    dram = quantity_of(found, dram.analytic);
  }
}

void set_cache_traffic(const char* level, const Found& found, Row& row) {
  const std::optional<double>& bytes = found.quantity.value;
  if (bytes && *bytes > 0) row.traffic[level] = quantity_of(found, std::nullopt);
}

const char* to_string(CounterMode mode) {
  switch (mode) {
    case CounterMode::automatic:
      return "auto";
    case CounterMode::counter:
      return "counter";
    case CounterMode::simulated:
      return "simulated";
    case CounterMode::analytic:
      return "analytic";
  }
  return "";
}

std::vector<Metric> all_metrics() { return perf::CountOptions{}.metrics; }

}  // namespace

CounterMode parse_counter_mode(std::string_view text) {
  for (const CounterMode mode :
       {CounterMode::automatic, CounterMode::counter, CounterMode::simulated, CounterMode::analytic}) {
    if (text == to_string(mode)) return mode;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("--counters '{}': must be auto, counter, simulated or analytic", text));
}

RowCounters::RowCounters(CounterMode mode, std::vector<std::unique_ptr<perf::CounterSource>> sources,
                         double seconds_limit, const perf::CalibrationCache& kept)
    : mode_(mode), seconds_limit_(seconds_limit) {
  for (auto& source : sources) sources_.push_back({std::make_unique<perf::CalibratedSource>(std::move(source), kept)});
}

bool RowCounters::counts(DeviceKind kind) const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [&](const Source& one) { return wants(*one.source, kind) && one.source->status().available; });
}

bool RowCounters::wants(const perf::CounterSource& source, DeviceKind kind) const {
  if (mode_ == CounterMode::analytic || source.on_gpu() != (kind == DeviceKind::gpu)) return false;
  if (mode_ == CounterMode::automatic) return true;
  return source.provenance() ==
         (mode_ == CounterMode::counter ? perf::Provenance::counter : perf::Provenance::simulated);
}

std::string RowCounters::missing_sources(const std::vector<DeviceKind>& devices) const {
  if (mode_ == CounterMode::analytic || mode_ == CounterMode::automatic) return "";
  std::string why;
  for (const Source& one : sources_) {
    const auto& source = one.source;  // clang before 16 captures no structured binding
    const bool concerned =
        std::any_of(devices.begin(), devices.end(), [&](DeviceKind kind) { return wants(*source, kind); });
    if (!concerned) continue;
    const perf::SourceStatus status = source->status();
    if (status.available) return "";
    why += fmt::format("\n  {}: {}\n    cure: {}", status.name, status.reason, status.cure);
  }
  return why.empty() ? "\n  no source of this kind measures these devices" : why;
}

void RowCounters::require_sources(const std::vector<DeviceKind>& devices) const {
  const std::string why = missing_sources(devices);
  if (why.empty()) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("--counters {}: no such source works here{}\n  --counters auto takes what there is and says "
                          "so in every row",
                          to_string(mode_), why));
}

Row RowCounters::count(Row row, const perf::Workload& workload, double seconds) {
  if (mode_ == CounterMode::analytic) return row;
  ++rows_;
  std::map<Metric, Found> found = measure_quantities(workload, seconds, row);
  const bool any = std::any_of(found.begin(), found.end(), [](const auto& f) { return f.second.source != nullptr; });
  rows_counted_ += any ? 1 : 0;
  set_work(found[Metric::flop], row.work);
  set_dram_traffic(found[Metric::dram_bytes], row.traffic["dram"]);
  for (const auto& [metric, level] : cache_levels()) set_cache_traffic(level, found[metric], row);
  return row;
}

bool RowCounters::has_no_count(const Row& row) {
  const auto dram = row.traffic.find("dram");
  const bool is_analytic = row.work.source == "analytic" && dram != row.traffic.end() &&
                           dram->second.source == "analytic" && dram->second.resident.empty();
  return is_analytic && !dram->second.reason.empty();
}

std::map<Metric, FoundQuantity> RowCounters::measure_quantities(const perf::Workload& workload, double seconds,
                                                                Row& row) {
  std::map<Metric, Found> found;
  for (auto& [source, longest] : sources_) {
    if (!wants(*source, row.place.kind)) continue;
    const perf::SourceStatus status = source->status();
    perf::CountOptions options;
    // A row may take only a part of the time that is spare for several rows.
    options.seconds_limit = std::min(seconds_limit_, seconds / 2);
    options.metrics.clear();
    for (const Metric metric : all_metrics()) {
      if (!found[metric].quantity.value && perf::ability(status, metric).available) options.metrics.push_back(metric);
    }
    if (options.metrics.empty()) continue;
    options.instructions = source->on_gpu();
    if (seconds < longest || seconds <= 0) {
      for (const Metric metric : options.metrics) found[metric].reasons.emplace_back(kNotCounted);
      continue;
    }
    source->calibrate(options.metrics);
    const auto start = std::chrono::steady_clock::now();
    const perf::Reading reading = source->measure(workload, options);
    longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    for (const auto& [metric, quantity] : reading.quantities) {
      Found& one = found[metric];
      if (!quantity.value) {
        one.reasons.push_back(fmt::format("{}: {}", source->name(), quantity.reason));
        continue;
      }
      one.quantity = quantity;
      one.source = source.get();
    }
    for (const auto& [name, value] : reading.extra) row.counters.extra[name] = value;
    if (reading.instructions) row.instructions = reading.instructions;
    row.counters.sources[reading.source] = {reading.plan.passes, reading.plan.explanation};
  }
  return found;
}

bool RowCounters::gave_nothing() const {
  const bool named = mode_ == CounterMode::counter || mode_ == CounterMode::simulated;
  return named && rows_ > 0 && rows_counted_ == 0;
}

std::optional<CountersEntry> RowCounters::entry() const {
  if (mode_ == CounterMode::analytic) return std::nullopt;
  CountersEntry entry{.mode = to_string(mode_)};
  for (const auto& [source, longest] : sources_) {
    entry.sources.push_back({source->status(), source->provenance(), source->calibration().checks});
  }
  return entry;
}

std::vector<std::string> RowCounters::summary() const {
  std::vector<std::string> lines;
  if (mode_ == CounterMode::analytic) return lines;
  lines.push_back(fmt::format("counters ({}): analytic where no source below gives a value", to_string(mode_)));
  for (const auto& [source, longest] : sources_) {
    const perf::SourceStatus status = source->status();
    const auto& checks = source->calibration().checks;
    if (!status.available) {
      lines.push_back(fmt::format("  {} ({}): not available: {}", status.name, perf::to_string(source->provenance()),
                                  status.reason));
    } else if (!checks.empty()) {
      const auto passed = std::count_if(checks.begin(), checks.end(), [](const auto& check) { return check.passed; });
      const bool kept = std::any_of(checks.begin(), checks.end(), [](const auto& check) { return check.kept; });
      lines.push_back(fmt::format("  {} ({}): {} of {} calibration checks passed{}", status.name,
                                  perf::to_string(source->provenance()), passed, checks.size(),
                                  kept ? ", as measured by an earlier command" : ""));
    }
    for (const std::string& word : source->words())  // what is wrong with the folder concerns all sources
      if (std::find(lines.begin(), lines.end(), "  " + word) == lines.end()) lines.push_back("  " + word);
  }
  return lines;
}

}  // namespace gable::bench
