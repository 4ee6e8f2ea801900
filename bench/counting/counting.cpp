// See counting.h.
#include "bench/counting/counting.h"

#include <fmt/format.h>
#include <gable/backend.h>
#include <gable/error.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <utility>

#include "bench/counting/counted.h"
#include "perfcounters/sources/counted_region.h"
#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

using nlohmann::json;
using perf::Metric;

const std::map<Metric, const char*>& levels() {
  static const std::map<Metric, const char*> names{
      {Metric::l1_bytes, "l1"}, {Metric::l2_bytes, "l2"}, {Metric::l3_bytes, "l3"}, {Metric::dram_bytes, "dram"}};
  return names;
}

/// A quantity as one source gave it, or what each source said why not.
struct Found {
  perf::Quantity quantity;
  const perf::CounterSource* source = nullptr;
  std::vector<std::string> reasons;
};

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

/// The fields that W and each level of Q have in common; `amount` is "flop" or "bytes".
json entry_of(const Found& found, const char* amount, double value, const json& analytic) {
  const perf::Quantity& q = found.quantity;
  json entry{{"source", perf::to_string(found.source->provenance())},
             {"by", found.source->name()},
             {amount, value},
             {"analytic", analytic},
             {"q1", q.q1},
             {"q3", q.q3},
             {"repetitions", q.repetitions},
             {"multiplex", q.multiplex}};
  if (analytic.is_number() && analytic.get<double>() > 0) entry["ratio"] = value / analytic.get<double>();
  if (!q.note.empty()) entry["note"] = q.note;
  return entry;
}

void set_work(const Found& found, json& record) {
  json& entry = record["W"];
  if (found.quantity.value) {
    entry = entry_of(found, "flop", *found.quantity.value, entry["analytic"]);
  } else if (!found.reasons.empty()) {
    entry["reason"] = joined(found.reasons);
  }
}

/// Tensors that stay in the caches from one warm run to the next leave a few lines of traffic, or none. An intensity of
/// that would say nothing of the op, and a record's bytes are above zero: there the least traffic stays.
bool is_resident(double bytes, const json& analytic) {
  constexpr double kNothing = 0.01;
  return bytes <= kNothing * analytic.get<double>();
}

void set_traffic(const char* level, const Found& found, json& traffic) {
  const bool is_dram = std::string_view(level) == "dram";
  const json analytic = is_dram ? traffic["dram"]["analytic"] : json(nullptr);
  json& entry = traffic[level];
  if (found.quantity.value && (is_dram ? !is_resident(*found.quantity.value, analytic) : *found.quantity.value > 0)) {
    entry = entry_of(found, "bytes", *found.quantity.value, analytic);
  } else if (is_dram && found.quantity.value) {
    entry["reason"] = fmt::format("{} read {:.0f} B: the tensors stay in the caches from run to run",
                                  found.source->name(), *found.quantity.value);
    entry[perf::to_string(found.source->provenance())] = *found.quantity.value;
  } else if (is_dram && !found.reasons.empty()) {
    entry["reason"] = joined(found.reasons);
  }
  if (entry.is_null()) traffic.erase(level);
}

void set_derived(json& record) {
  const double flop = record["W"]["flop"];
  record["intensity"] = flop / record["Q"]["dram"]["bytes"].get<double>();
  record["gflops"] = flop / record["T"]["seconds"].get<double>() / 1e9;
}

int gpu_index(const OpenDevice& device) {
  if (!device.gpu) return -1;
  const std::string selector = parse_device_uri(device.uri).selector;
  int index = 0;
  std::from_chars(selector.data(), selector.data() + selector.size(), index);
  return index;
}

/// The same device on one thread, with the same kernel, and with instructions that valgrind knows.
std::string one_thread_device(const OpRunner& runner) {
  DeviceUri uri = parse_device_uri(runner.device().uri);
  if (uri.backend == "cpu" || uri.backend == "onednn") uri.options["threads"] = "1";
  if (uri.backend == "cpu") {
    uri.options["kernel"] = runner.plan().kernel();
    if (uri.selector.empty() || uri.selector.starts_with("avx512")) uri.selector = "avx2";
  }
  return to_string(uri);
}

json ability_record(const perf::Ability& one) {
  return {{"quantity", perf::to_string(one.metric)},
          {"available", one.available},
          {"reason", one.reason},
          {"cure", one.cure}};
}

json check_record(const perf::CalibrationCheck& check) {
  return {{"kernel", check.kernel},       {"quantity", perf::to_string(check.metric)},
          {"expected", check.expected},   {"measured", check.measured ? json(*check.measured) : json(nullptr)},
          {"tolerance", check.tolerance}, {"allowance", check.allowance},
          {"passed", check.passed},       {"reason", check.reason}};
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

perf::Workload workload_of(const Measured& measured, const std::string& helper) {
  const OpRunner& runner = *measured.runner;
  perf::Workload workload;
  workload.run = [&runner] { runner.run(); };
  workload.gpu = gpu_index(runner.device());
  workload.flop = runner.plan().work().flop;
  const Math math = math_of(measured.one->op);
  const bool in_parts = math == Math::split3 || math == Math::split6;  // of bf16
  workload.dtype = in_parts ? "bf16" : std::string(gable::to_string(dtype_of(measured.one->op)));
  workload.seconds = measured.timing.seconds * std::max(1, runner.device().threads);
  if (measured.cache == perf::Cache::cold) {
    workload.flush = runner.subject().flush;
    if (!workload.flush) {
      workload.flush = [flusher = std::make_shared<perf::CacheFlusher>()] { flusher->flush(); };
    }
  }
  if (runner.device().gpu) return workload;
  workload.child = [&measured, helper](const perf::ChildTask& task) {
    std::vector<std::string> argv{helper, "counted", "--device", one_thread_device(*measured.runner)};
    for (std::string& word : op_arguments(measured.one->op)) argv.push_back(std::move(word));
    for (std::string& word : perf::task_arguments(task)) argv.push_back(std::move(word));
    return argv;
  };
  return workload;
}

Counting::Counting(CounterMode mode, std::vector<std::unique_ptr<perf::CounterSource>> sources, std::string helper,
                   double seconds_limit)
    : mode_(mode), helper_(std::move(helper)), seconds_limit_(seconds_limit) {
  for (auto& source : sources) sources_.push_back(std::make_unique<perf::CalibratedSource>(std::move(source)));
}

bool Counting::wants(const perf::CounterSource& source, bool gpu) const {
  if (mode_ == CounterMode::analytic || source.on_gpu() != gpu) return false;
  if (mode_ == CounterMode::automatic) return true;
  return source.provenance() ==
         (mode_ == CounterMode::counter ? perf::Provenance::counter : perf::Provenance::simulated);
}

void Counting::require_sources(const std::vector<OpenDevice>& devices) const {
  if (mode_ == CounterMode::analytic || mode_ == CounterMode::automatic) return;
  std::string why;
  for (const auto& source : sources_) {
    const bool concerned =
        std::any_of(devices.begin(), devices.end(), [&](const OpenDevice& d) { return wants(*source, d.gpu); });
    if (!concerned) continue;
    const perf::SourceStatus status = source->status();
    if (status.available) return;
    why += fmt::format("\n  {}: {}\n    cure: {}", status.name, status.reason, status.cure);
  }
  if (why.empty()) why = "\n  no source of this kind measures these devices";
  throw Error(ErrorCode::unsupported,
              fmt::format("--counters {}: no such source works here{}\n  --counters auto takes what there is and says "
                          "so in every row",
                          to_string(mode_), why));
}

void Counting::count(const Measured& measured, json& record) {
  if (mode_ == CounterMode::analytic) return;
  ++rows_;
  const perf::Workload workload = workload_of(measured, helper_);
  std::map<Metric, Found> found;
  json extra = json::object();
  for (const auto& source : sources_) {
    if (!wants(*source, measured.runner->device().gpu)) continue;
    const perf::SourceStatus status = source->status();
    perf::CountOptions options;
    options.seconds_limit = seconds_limit_;
    options.metrics.clear();
    for (const Metric metric : all_metrics()) {
      if (!found[metric].quantity.value && perf::ability(status, metric).available) options.metrics.push_back(metric);
    }
    if (options.metrics.empty()) continue;
    const perf::Reading reading = source->measure(workload, options);
    for (const auto& [metric, quantity] : reading.quantities) {
      Found& one = found[metric];
      if (!quantity.value) {
        one.reasons.push_back(fmt::format("{}: {}", source->name(), quantity.reason));
        continue;
      }
      one.quantity = quantity;
      one.source = source.get();
    }
    for (const auto& [name, value] : reading.extra) extra[name] = value;
    record["counting"][reading.source] = {{"passes", reading.plan.passes}, {"plan", reading.plan.explanation}};
  }
  const bool any = std::any_of(found.begin(), found.end(), [](const auto& f) { return f.second.source != nullptr; });
  rows_counted_ += any ? 1 : 0;
  set_work(found[Metric::flop], record);
  for (const auto& [metric, level] : levels()) set_traffic(level, found[metric], record["Q"]);
  if (!extra.empty()) record["extra"] = std::move(extra);
  set_derived(record);
}

bool Counting::gave_nothing() const {
  const bool named = mode_ == CounterMode::counter || mode_ == CounterMode::simulated;
  return named && rows_ > 0 && rows_counted_ == 0;
}

json Counting::record() const {
  if (mode_ == CounterMode::analytic) return nullptr;
  json all = json::array();
  for (const auto& source : sources_) {
    const perf::SourceStatus status = source->status();
    json one{{"name", status.name},           {"source", perf::to_string(source->provenance())},
             {"available", status.available}, {"reason", status.reason},
             {"cure", status.cure},           {"quantities", json::array()},
             {"calibration", json::array()}};
    for (const perf::Ability& able : status.abilities) one["quantities"].push_back(ability_record(able));
    for (const perf::CalibrationCheck& check : source->calibration().checks)
      one["calibration"].push_back(check_record(check));
    all.push_back(std::move(one));
  }
  return {{"mode", to_string(mode_)}, {"sources", std::move(all)}};
}

std::vector<std::string> Counting::summary() const {
  std::vector<std::string> lines;
  if (mode_ == CounterMode::analytic) return lines;
  lines.push_back(fmt::format("counters ({}): analytic where no source below gives a value", to_string(mode_)));
  for (const auto& source : sources_) {
    const perf::SourceStatus status = source->status();
    const auto& checks = source->calibration().checks;
    if (!status.available) {
      lines.push_back(fmt::format("  {} ({}): not available: {}", status.name, perf::to_string(source->provenance()),
                                  status.reason));
    } else if (!checks.empty()) {
      const auto passed = std::count_if(checks.begin(), checks.end(), [](const auto& check) { return check.passed; });
      lines.push_back(fmt::format("  {} ({}): {} of {} calibration checks passed", status.name,
                                  perf::to_string(source->provenance()), passed, checks.size()));
    }
  }
  return lines;
}

}  // namespace gable::bench
