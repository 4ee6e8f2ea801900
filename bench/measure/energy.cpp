// See energy.h.
#include "bench/measure/energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "bench/measure/ceiling_rounds.h"

namespace gable::bench {
namespace {

constexpr double kIdleNap = 0.01;  // s, between two readings of an idle device

std::string device_of(std::optional<int> gpu) { return gpu ? fmt::format("cuda:{}", *gpu) : "cpu"; }

}  // namespace

EnergyMeasurer::EnergyMeasurer(Open open, perf::EnergyProtocol protocol)
    : open_(std::move(open)), protocol_(std::move(protocol)) {}

void EnergyMeasurer::prepare(std::optional<int> gpu) {
  if (!wanted() || counters_.contains(gpu)) return;
  perf::EnergySource source = open_(gpu);
  EnergyCounterEntry entry{.device = device_of(gpu),
                           .device_kind = gpu ? DeviceKind::gpu : DeviceKind::cpu,
                           .by = source.by,
                           .reason = source.reason,
                           .cure = source.cure,
                           .note = source.note};
  const auto nap = [this](int calls) {
    if (protocol_.nap) {
      protocol_.nap(calls * kIdleNap);
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(calls * kIdleNap));
    }
  };
  if (source.available()) {
    const perf::Energy idle = measure_energy(source, nap, kIdleNap, protocol_);
    if (idle.joules) entry.idle_watts = idle.watts;
    if (!idle.joules) entry.note += "; idle power: " + idle.reason;
  }
  counters_.emplace(gpu, Counter{std::move(source), std::move(entry)});
}

const EnergyMeasurer::Counter& EnergyMeasurer::counter_of(std::optional<int> gpu) {
  prepare(gpu);
  return counters_.at(gpu);
}

void EnergyMeasurer::measure(Row& row, const perf::Subject& subject) {
  if (!wanted()) return;
  const Counter& counter = counter_of(row.on_gpu() ? std::optional(row.place.gpu.value_or(0)) : std::nullopt);
  if (row.place.cache == "cold") {
    row.energy = {.reason = "sweeping the caches before each cold call would be counted too", .by = counter.source.by};
    return;
  }
  const perf::Energy energy = measure_energy(
      counter.source, [&](int calls) { subject.time(calls); }, row.time.seconds, protocol_);
  row.energy = {.joules = energy.joules,
                .reason = energy.reason,
                .by = counter.source.by,
                .watts = energy.watts,
                .seconds = energy.seconds,
                .calls = energy.calls,
                .updates = energy.updates,
                .uncertainty = energy.uncertainty};
}

std::optional<double> EnergyMeasurer::per_joule(std::optional<int> gpu, const std::function<double()>& work) {
  if (!wanted()) return std::nullopt;
  const Counter& counter = counter_of(gpu);
  if (!counter.source.available()) return std::nullopt;
  const auto now = protocol_.clock ? protocol_.clock : steady_seconds;
  const double start = now();
  double done = work();
  const double seconds = now() - start;
  const auto run = [&](int calls) {
    for (int i = 0; i < calls; ++i) done = work();
  };
  const perf::Energy energy = measure_energy(counter.source, run, seconds, protocol_);
  if (!energy.joules || !(*energy.joules > 0)) return std::nullopt;
  return done / *energy.joules;
}

std::vector<EnergyCounterEntry> EnergyMeasurer::entries() const {
  std::vector<EnergyCounterEntry> entries;
  for (const auto& [gpu, counter] : counters_) entries.push_back(counter.entry);
  return entries;
}

std::vector<std::string> EnergyMeasurer::summary() const {
  std::vector<std::string> lines;
  const bool none = std::none_of(counters_.begin(), counters_.end(),
                                 [](const auto& counter) { return counter.second.source.available(); });
  if (none && !counters_.empty()) {
    std::string reasons;
    for (const auto& [gpu, counter] : counters_)
      reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", counter.entry.reason, counter.entry.device);
    lines.push_back("energy: none here: " + reasons);
    return lines;
  }
  for (const auto& [gpu, counter] : counters_) {
    const EnergyCounterEntry& entry = counter.entry;
    if (!entry.reason.empty()) {
      lines.push_back(fmt::format("energy of {}: none: {}{}", entry.device, entry.reason,
                                  entry.cure.empty() ? "" : "; cure: " + entry.cure));
    } else {
      lines.push_back(fmt::format("energy of {}: {} ({}), idle power included{}", entry.device, entry.by, entry.note,
                                  entry.idle_watts ? fmt::format(": {:.0f} W", *entry.idle_watts) : ""));
    }
  }
  return lines;
}

EnergyMeasurer::Open open_energy() {
  const auto nvml = std::make_shared<std::optional<perf::NvmlReader>>();
  return [nvml](std::optional<int> gpu) {
    if (!gpu) return perf::rapl_energy();
    if (!*nvml) *nvml = perf::open_nvml();
    return perf::nvml_energy(*gpu, **nvml);
  };
}

}  // namespace gable::bench
