// See calibration.h.
#include "perfcounters/sources/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace gable::perf {
namespace {

constexpr double kSecondsLimit = 60;  // of one known kernel, which takes a second or two

bool contains(const std::vector<Metric>& metrics, Metric metric) {
  return std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
}

CalibrationCheck check_of(const KnownWork& known, Metric metric, const Quantity& measured) {
  const double expected = known.expected.at(metric);
  CalibrationCheck check{.kernel = known.name,
                         .metric = metric,
                         .expected = expected,
                         .measured = measured.value,
                         .tolerance = known.tolerance,
                         .allowance = known.allowance,
                         .reason = measured.reason};
  check.passed = measured.value && std::abs(*measured.value - expected) <= known.tolerance * expected + known.allowance;
  return check;
}

std::vector<CalibrationCheck> run(CounterSource& source, const KnownWork& known, const std::vector<Metric>& metrics) {
  if (known.workload.run) known.workload.run();  // creates its arrays and threads before it is counted
  const Reading reading = source.measure(known.workload, {.metrics = metrics, .seconds_limit = kSecondsLimit});
  std::vector<CalibrationCheck> checks;
  for (const Metric metric : metrics) checks.push_back(check_of(known, metric, reading.at(metric)));
  return checks;
}

/// Empty unless there is a reading for each metric and all pass: a kernel is run for all of them at once.
std::vector<CalibrationCheck> kept_checks(const KnownReadings& kept, const KnownWork& known,
                                          const std::vector<Metric>& metrics) {
  std::vector<CalibrationCheck> checks;
  for (const Metric metric : metrics) {
    const auto found = kept.find({known.name, metric});
    if (found == kept.end()) return {};
    CalibrationCheck check = check_of(known, metric, {.value = found->second});
    if (!check.passed) return {};
    check.kept = true;
    checks.push_back(std::move(check));
  }
  return checks;
}

/// Of the checks that were measured now. Empty unless all passed: a failure may have a cause that passes.
KnownReadings new_readings(const std::vector<CalibrationCheck>& checks) {
  KnownReadings readings;
  for (const CalibrationCheck& check : checks) {
    if (!check.passed) return {};
    if (!check.kept) readings[{check.kernel, check.metric}] = *check.measured;
  }
  return readings;
}

std::string described(const CalibrationCheck& check) {
  const std::string unit = check.metric == Metric::flop ? "FLOP" : "B";
  const std::string wanted =
      fmt::format("{} has {} = {:.6g} {}", check.kernel, to_string(check.metric), check.expected, unit);
  if (!check.measured) return fmt::format("{}; no value was read: {}", wanted, check.reason);
  return fmt::format("{}; {:.6g} was read, and {:g} % are tolerated", wanted, *check.measured, 100 * check.tolerance);
}

}  // namespace

std::string Calibration::refusal(Metric metric) const {
  bool checked = false;
  for (const CalibrationCheck& check : checks) {
    if (check.metric != metric) continue;
    checked = true;
    if (!check.passed) return fmt::format("{} failed its calibration: {}", source, described(check));
  }
  return checked
             ? ""
             : fmt::format("{} is not calibrated for {}: no kernel of known value was run", source, to_string(metric));
}

Calibration calibrate(CounterSource& source, const std::vector<Metric>& metrics, CalibrationCache& kept) {
  Calibration calibration{.source = source.name(), .checks = {}};
  const SourceStatus status = source.status();
  const std::string identity = kept.keeps() ? source.calibration_identity() : "";
  const KnownReadings before = kept.find(identity);
  std::vector<KnownWork> all = source.known_work();
  for (KnownWork& one : all) {
    const KnownWork known = std::move(one);  // frees its arrays after this iteration
    std::vector<Metric> here;
    for (const auto& [metric, expected] : known.expected)
      if (contains(metrics, metric) && ability(status, metric).available) here.push_back(metric);
    if (here.empty()) continue;
    std::vector<CalibrationCheck> checks = kept_checks(before, known, here);
    if (checks.empty()) checks = run(source, known, here);
    std::move(checks.begin(), checks.end(), std::back_inserter(calibration.checks));
  }
  kept.store(identity, new_readings(calibration.checks));
  return calibration;
}

CalibratedSource::CalibratedSource(std::unique_ptr<CounterSource> source, CalibrationCache kept)
    : source_(std::move(source)), kept_(std::move(kept)) {
  calibration_.source = source_->name();
}

void CalibratedSource::calibrate(const std::vector<Metric>& metrics) {
  std::vector<Metric> fresh;
  for (const Metric metric : metrics)
    if (!contains(calibrated_, metric)) fresh.push_back(metric);
  if (fresh.empty()) return;
  Calibration more = perf::calibrate(*source_, fresh, kept_);
  std::move(more.checks.begin(), more.checks.end(), std::back_inserter(calibration_.checks));
  calibrated_.insert(calibrated_.end(), fresh.begin(), fresh.end());
}

Reading CalibratedSource::measure(const Workload& workload, const CountOptions& options) {
  calibrate(options.metrics);
  const SourceStatus here = status();
  CountOptions trusted = options;
  std::map<Metric, std::string> refused;
  for (const Metric metric : options.metrics) {
    const Ability able = ability(here, metric);
    const std::string why = able.available ? calibration_.refusal(metric) : able.reason;
    if (why.empty()) continue;
    refused[metric] = why;
    std::erase(trusted.metrics, metric);
  }
  Reading reading{.source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = {}};
  if (!trusted.metrics.empty()) reading = source_->measure(workload, trusted);
  for (auto& [metric, why] : refused) reading.quantities[metric] = Quantity{.reason = std::move(why)};
  return reading;
}

}  // namespace gable::perf
