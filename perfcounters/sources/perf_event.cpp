// See perf_event.h.
#include "perfcounters/sources/perf_event.h"

#include <fmt/format.h>
#include <linux/perf_event.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <stdexcept>
#include <utility>

#include "perfcounters/sources/known_work.h"
#include "perfcounters/sources/perf_group.h"

namespace gable::perf {
namespace {

int open_flop_group(std::span<const FlopEvent> events, int thread, PerfGroup& group) {
  for (const FlopEvent& event : events)
    if (const int error = group.add({.type = PERF_TYPE_RAW, .config = event.config, .thread = thread})) return error;
  return 0;
}

// errno of an event that could not be opened, else 0 and a group for each thread that is alive.
int open_flop_groups(PerfSystem& system, std::span<const FlopEvent> events, std::vector<PerfGroup>& groups) {
  for (const int thread : system.threads()) {
    PerfGroup group(system);
    const int error = open_flop_group(events, thread, group);
    if (error == ESRCH) continue;  // the thread ended after it was listed
    if (error != 0) return error;
    groups.push_back(std::move(group));
  }
  return 0;
}

}  // namespace

PerfEventSource::PerfEventSource(PerfHost host, std::shared_ptr<PerfSystem> system)
    : PerfEventSource(host, std::move(system), flop_groups(host.machine, host.sve_bits)) {}

PerfEventSource::PerfEventSource(PerfHost host, std::shared_ptr<PerfSystem> system,
                                 std::vector<std::vector<FlopEvent>> groups)
    : host_(std::move(host)), system_(std::move(system)), flop_groups_(std::move(groups)) {}

SourceStatus PerfEventSource::status() const {
  SourceStatus status{.name = name(), .available = false, .provides = kPerfProvides, .reason = {}, .cure = {}};
  Ability flop{Metric::flop, false, "", ""};
  Ability dram{Metric::dram_bytes, false, "", ""};
  if (flop_groups_.empty()) {
    flop.reason = fmt::format("no floating-point events are known for the CPU vendor \"{}\"", host_.machine.cpu.vendor);
    flop.cure = "an Intel, AMD or Arm CPU; or rely on analytic W and Q";
  }
  for (const auto& events : flop_groups_) {
    PerfGroup group(*system_);
    if (const int error = open_flop_group(events, 0, group)) {
      const SourceStatus failure = explain_core_failure(host_, error);
      flop.reason = failure.reason;
      flop.cure = failure.cure;
      break;
    }
  }
  flop.available = flop.reason.empty();
  if (flop.available && host_.machine.cpu.vendor == kArmImplementer) flop.reason = "speculative operations count too";

  const std::vector<MemoryEvent> memory = memory_events(host_.devices);
  std::vector<std::vector<PerfGroup>> groups;
  if (memory.empty()) {
    dram.reason = kNoMemoryPmu;
    dram.cure = "a server CPU on bare metal with the uncore driver (modprobe intel_uncore; amd_uncore since Linux 6.8)";
  } else if (const int error = open_memory_groups(*system_, memory, groups)) {
    const SourceStatus failure = explain_memory_failure(host_, error);
    dram.reason = failure.reason;
    dram.cure = failure.cure;
  } else {
    dram.available = true;
  }
  status.available = flop.available || dram.available;
  if (!flop.available || !dram.available) {
    const Ability& missing = flop.available ? dram : flop;
    status.reason = (status.available ? fmt::format("no {}: ", to_string(missing.metric)) : "") + missing.reason;
    status.cure = missing.cure;
  }
  status.abilities = {std::move(flop), std::move(dram)};
  return status;
}

PassPlan PerfEventSource::prepare(const CountOptions&) {
  const int passes = std::max<int>(1, static_cast<int>(flop_groups_.size()));
  return {passes, fmt::format("{} group{} of core events, a run each; the memory controllers count in the first",
                              flop_groups_.size(), flop_groups_.size() == 1 ? "" : "s")};
}

struct PerfEventSource::Counts {
  Quantity flop;
  Quantity dram_bytes;
  std::map<std::string, double> extra;
};

namespace {

/// The groups that count around one run.
struct Armed {
  std::vector<PerfGroup> core;
  std::vector<std::vector<PerfGroup>> boxes;

  void run(const std::function<void()>& work) const {
    each([](const PerfGroup& group) { group.start(); });
    work();
    each([](const PerfGroup& group) { group.stop(); });
  }
  std::vector<RawGroup> read_core() const { return read_all(core); }
  std::vector<std::vector<RawGroup>> read_boxes() const { return read_memory_groups(boxes); }

 private:
  static std::vector<RawGroup> read_all(const std::vector<PerfGroup>& groups) {
    std::vector<RawGroup> raw;
    for (const PerfGroup& group : groups) raw.push_back(group.read());
    return raw;
  }
  template <class Act>
  void each(const Act& act) const {
    for (const auto& groups : boxes)
      for (const PerfGroup& group : groups) act(group);
    for (const PerfGroup& group : core) act(group);
  }
};

}  // namespace

PerfEventSource::Counts PerfEventSource::count_once(const Workload& workload, const CountOptions& options) const {
  const auto wanted = [&](Metric metric) {
    return std::find(options.metrics.begin(), options.metrics.end(), metric) != options.metrics.end();
  };
  Counts counts{.flop = {.value = 0}, .dram_bytes = {}, .extra = {}};
  std::vector<MemoryEvent> memory;
  if (wanted(Metric::dram_bytes)) memory = memory_events(host_.devices);
  if (memory.empty()) counts.dram_bytes.reason = kNoMemoryPmu;
  if (flop_groups_.empty()) counts.flop = {.reason = "no floating-point events are known for this CPU"};

  const std::size_t passes = wanted(Metric::flop) ? std::max<std::size_t>(1, flop_groups_.size()) : 1;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    if (workload.restore) workload.restore();
    if (workload.flush) workload.flush();
    std::span<const FlopEvent> events;
    if (wanted(Metric::flop) && counts.flop.value) events = flop_groups_[pass];
    Armed armed;
    if (!events.empty())
      if (const int error = open_flop_groups(*system_, events, armed.core)) {
        counts.flop = {.reason = explain_core_failure(host_, error).reason};
        armed.core.clear();
      }
    if (pass == 0)
      if (const int error = open_memory_groups(*system_, memory, armed.boxes)) {
        counts.dram_bytes.reason = explain_memory_failure(host_, error).reason;
        armed.boxes.clear();
      }
    armed.run(workload.run);
    if (!armed.boxes.empty()) counts.dram_bytes = bytes_from_counts(memory, armed.read_boxes());
    if (armed.core.empty()) continue;
    const std::vector<RawGroup> raw = armed.read_core();
    const Quantity part = flop_from_counts(events, raw);
    counts.flop = part.value ? Quantity{.value = *counts.flop.value + *part.value} : part;
    add_extra(events, raw, counts.extra);
  }
  return counts;
}

Reading PerfEventSource::measure(const Workload& workload, const CountOptions& options) {
  if (!workload.run) throw std::invalid_argument("perf_event counts around a call: Workload::run must be callable");
  workload.run();  // creates its threads
  std::map<Metric, std::vector<Quantity>> taken;
  Reading reading{
      .source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = prepare(options)};
  for (int i = 0; i < std::max(1, options.repetitions); ++i) {
    Counts counts = count_once(workload, options);
    taken[Metric::flop].push_back(std::move(counts.flop));
    taken[Metric::dram_bytes].push_back(std::move(counts.dram_bytes));
    reading.extra = std::move(counts.extra);
  }
  for (const Metric metric : options.metrics) {
    const auto found = taken.find(metric);
    reading.quantities[metric] = found != taken.end()
                                     ? combine(found->second)
                                     : Quantity{.reason = std::string("perf_event gives no ") + to_string(metric)};
  }
  if (reading.quantities.count(Metric::flop) == 0) return reading;
  const bool intel = host_.machine.cpu.vendor == "GenuineIntel";
  Quantity& flop = reading.quantities[Metric::flop];
  flop = without_amx(std::move(flop), reading.extra);
  if (intel && workload.dtype == "bf16" && amx_cycles(reading.extra) == 0)
    flop = {.reason = "Intel's bf16 dot products (VDPBF16PS) have no event"};
  return reading;
}

std::vector<KnownWork> PerfEventSource::known_work() const {
  constexpr double kFlopTolerance = 0.01;
  constexpr double kBytesTolerance = 0.05;  // the controllers count the neighbours' traffic too
  return known_work_in_process(describe_machine(), kFlopTolerance, kBytesTolerance);
}

}  // namespace gable::perf
