// See perf_counts.h. What the counts mean, and when they are refused, is flop_events.cpp's and memory_events.cpp's.
#include "perfcounters/program/perf_counts.h"

#include <fmt/format.h>
#include <linux/perf_event.h>

#include <algorithm>
#include <span>

#include "perfcounters/listen/region_file.h"

namespace gable::perf {
namespace {

/// The sum of two runs' parts, or the first refusal.
Quantity plus(const Quantity& sum, const Quantity& part) {
  if (!sum.value) return sum;
  if (!part.value) return part;
  const double value = *sum.value + *part.value;
  return {.value = value, .q1 = value, .q3 = value};
}

Quantity per_call(Quantity quantity, double calls) {
  if (!quantity.value) return quantity;
  const double value = *quantity.value / calls;
  return {.value = value, .q1 = value, .q3 = value};
}

std::size_t listed_events(std::span<const MemoryEvent> events) {
  std::size_t count = 0;
  for (const MemoryEvent& event : events) count += event.cpus.size();
  return count;
}

ProgramCounts::Work nothing_yet() {
  return {.flop = {.value = 0}, .flop_by_type = {}, .dram_bytes = {.reason = "not counted"}};
}

void add_by_type(std::span<const FlopEvent> events, const RawGroup& group, double calls,
                 std::map<std::string, double>& types) {
  for (std::size_t i = 0; i < events.size() && i < group.values.size(); ++i)
    if (events[i].flop_per_count != 0)
      types[events[i].type] += events[i].flop_per_count * static_cast<double>(group.values[i]) / calls;
}

}  // namespace

/// One path in one run: sums over the processes.
struct ProgramCounts::RegionSum {
  double calls = 0;
  bool overlapped = false;
  bool incomplete = false;         ///< a process could not open its events
  std::vector<RawGroup> counts{};  ///< as in RegionRecord

  void add(const RegionRecord& region) {
    incomplete = incomplete || (calls > 0 && region.counts.size() != counts.size());
    calls += static_cast<double>(region.times.calls);
    overlapped = overlapped || region.overlapped;
    counts.resize(std::max(counts.size(), region.counts.size()), RawGroup{0, 0, {0}});
    for (std::size_t i = 0; i < region.counts.size(); ++i) {
      const RawGroup& group = region.counts[i];
      counts[i].time_enabled += group.time_enabled;
      counts[i].time_running += group.time_running;
      if (group.values.empty())
        incomplete = true;
      else
        counts[i].values[0] += group.values[0];
    }
  }
};

ProgramCounts::ProgramCounts(PerfHost host, std::shared_ptr<PerfSystem> system)
    : host_(std::move(host)),
      system_(std::move(system)),
      status_(PerfEventSource(host_, system_, flop_groups_by_type(host_.machine, host_.sve_bits)).status()),
      flop_groups_(flop_groups_by_type(host_.machine, host_.sve_bits)),
      memory_(memory_events(host_.devices)),
      program_(nothing_yet()) {
  if (!counts(Metric::flop)) program_.flop = {.reason = ability(status_, Metric::flop).reason};
  if (!counts(Metric::dram_bytes)) program_.dram_bytes = {.reason = ability(status_, Metric::dram_bytes).reason};
}

int ProgramCounts::runs() const {
  if (!status_.available) return 0;
  return counts(Metric::flop) ? std::max(1, static_cast<int>(flop_groups_.size())) : 1;
}

std::vector<FlopEvent> ProgramCounts::core_events(int run) const {
  if (!counts(Metric::flop)) return {};
  return flop_groups_.at(static_cast<std::size_t>(run));
}

std::vector<MemoryEvent> ProgramCounts::region_memory(int run, std::string& reason) const {
  if (!counts(Metric::dram_bytes)) {
    reason = ability(status_, Metric::dram_bytes).reason;
    return {};
  }
  if (run != 0) return {};
  const std::size_t most = listen::kMaxEvents - core_events(run).size(), listed = listed_events(memory_);
  if (listed <= most) return memory_;
  reason = fmt::format("this machine's memory controllers have {} events, and a region reads {} at most", listed, most);
  return {};
}

std::vector<std::pair<std::string, std::string>> ProgramCounts::environment(int run) const {
  std::string list, ignored;
  const auto add = [&](const std::string& event) { list += (list.empty() ? "" : ",") + event; };
  for (const FlopEvent& event : core_events(run))
    add(fmt::format("{}:{:#x}:{}", static_cast<int>(PERF_TYPE_RAW), event.config, event.flop_per_count));
  for (const MemoryEvent& event : region_memory(run, ignored))
    for (const int cpu : event.cpus)
      add(fmt::format("{}:{:#x}:{}:{}", event.type, event.config, event.bytes_per_count, cpu));
  if (list.empty()) return {};
  return {{"GABLE_SESSION_EVENTS", list}};
}

void ProgramCounts::attach(int pid, int run) {
  run_ = run;
  core_.clear();
  boxes_.clear();
  PerfGroup group(*system_);
  for (const FlopEvent& event : core_events(run)) {
    const int error = group.add({.type = PERF_TYPE_RAW, .config = event.config, .thread = pid, .program = true});
    if (error == 0) continue;
    program_.flop = {.reason = explain_core_failure(host_, error).reason};
    break;
  }
  if (program_.flop.value && !group.empty()) core_.push_back(std::move(group));
  if (run != 0 || !counts(Metric::dram_bytes)) return;
  if (const int error = open_memory_groups(*system_, memory_, boxes_)) {
    program_.dram_bytes = {.reason = explain_memory_failure(host_, error).reason};
    boxes_.clear();
  }
  for (const auto& groups : boxes_)
    for (const PerfGroup& box : groups) box.start();
}

void ProgramCounts::collect(const SessionRecords& session) {
  if (run_ < 0) return;  // the program was never started
  for (const auto& groups : boxes_)
    for (const PerfGroup& box : groups) box.stop();
  if (!boxes_.empty()) program_.dram_bytes = bytes_from_counts(memory_, read_memory_groups(boxes_));
  for (const PerfGroup& group : core_) {
    const std::vector<FlopEvent> events = core_events(run_);
    const RawGroup raw = group.read_program();
    program_.flop = plus(program_.flop, flop_from_counts(events, raw));
    add_by_type(events, raw, 1, program_.flop_by_type);
    add_extra(events, std::span(&raw, 1), extra_);
  }
  core_.clear();
  boxes_.clear();

  std::map<std::string, RegionSum> sums;
  for (const RegionRecord& region : session.regions) sums[region.path].add(region);
  for (const auto& [path, sum] : sums)
    collect_region(sum, regions_.try_emplace(path, Region{nothing_yet(), {}}).first->second);
  run_ = -1;
}

void ProgramCounts::collect_region(const RegionSum& sum, Region& into) const {
  std::string reason;
  const std::vector<FlopEvent> events = core_events(run_);
  const std::vector<MemoryEvent> memory = region_memory(run_, reason);
  if (!counts(Metric::flop)) into.work.flop = {.reason = ability(status_, Metric::flop).reason};
  if (!reason.empty()) into.work.dram_bytes = {.reason = reason};
  std::string refusal;
  if (sum.overlapped)
    refusal = "two threads were in regions at the same time, so their counts can't be told apart";
  else if (sum.counts.empty())
    refusal = "the listener read no counters in its process";
  else if (sum.incomplete || sum.counts.size() != events.size() + listed_events(memory))
    refusal = "the program's own process could not open these events (the session's notes have the reason)";
  if (!refusal.empty()) {
    if (!events.empty()) into.work.flop = {.reason = refusal};
    if (!memory.empty()) into.work.dram_bytes = {.reason = refusal};
    return;
  }
  const std::span all(sum.counts);
  if (!events.empty()) {
    const RawGroup core = PerfGroup::grouped(all.first(events.size()));
    into.work.flop = plus(into.work.flop, per_call(flop_from_counts(events, core), sum.calls));
    add_by_type(events, core, sum.calls, into.work.flop_by_type);
    add_extra(events, std::span(&core, 1), into.extra);
  }
  if (memory.empty()) return;
  std::vector<std::vector<RawGroup>> boxes;
  std::size_t at = events.size();
  for (const MemoryEvent& event : memory) {
    const auto of_event = all.subspan(at, event.cpus.size());
    boxes.emplace_back(of_event.begin(), of_event.end());
    at += event.cpus.size();
  }
  into.work.dram_bytes = per_call(bytes_from_counts(memory, boxes), sum.calls);
}

/// With what the counters could not see.
ProgramCounts::Work ProgramCounts::finished(const Work& work, const std::map<std::string, double>& extra) const {
  Work result = work;
  result.flop = without_amx(std::move(result.flop), extra);
  if (!result.flop.value) return result;
  if (host_.machine.cpu.vendor == "GenuineIntel" && host_.machine.cpu.has("avx512_bf16"))
    result.flop.note = "bf16 dot products (VDPBF16PS) have no event: they are not in it";
  else if (ability(status_, Metric::flop).available)
    result.flop.note = ability(status_, Metric::flop).reason;  // Arm: speculative operations
  return result;
}

ProgramCounts::Work ProgramCounts::program() const { return finished(program_, extra_); }

std::map<std::string, ProgramCounts::Work> ProgramCounts::regions() const {
  std::map<std::string, Work> works;
  for (const auto& [path, region] : regions_) works[path] = finished(region.work, region.extra);
  return works;
}

}  // namespace gable::perf
