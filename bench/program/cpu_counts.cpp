// See cpu_counts.h.
#include "bench/program/cpu_counts.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "bench/common/text.h"
#include "perfcounters/program/perf_counts.h"
#include "perfcounters/program/simulation.h"
#include "perfcounters/program/standard_input.h"

namespace gable::bench {
namespace {

using perf::Metric;

/// A simulated run takes about so many times the CPU time of the program. Measured: 60 for loops over memory, 120 for
/// arithmetic; it only decides which programs `auto` does not try to simulate.
constexpr double kSlowdown = 100;

void add_level(CountedWork& work, const char* level, const perf::Quantity& quantity, double calls) {
  if (quantity.value) {
    work.bytes[level] = *quantity.value / calls;
    if (!quantity.note.empty() && work.note.find(quantity.note) == std::string::npos) {
      work.note += (work.note.empty() ? "" : "; ") + quantity.note;
    }
  } else if (std::string_view(level) == "dram") {
    const bool same = work.reason == "W: " + quantity.reason;  // of a program that could not be counted at all
    work.reason = same ? quantity.reason : "Q(dram): " + quantity.reason;
  }
}

/// Without traffic there is no FLOP/byte of the memory.
void explain_no_traffic(CountedWork& work) {
  const auto dram = work.bytes.find("dram");
  if (dram == work.bytes.end() || dram->second > 0 || !work.reason.empty()) return;
  work.reason = "its data stay in the caches, without traffic to memory";
}

// ---- simulated ------------------------------------------------------------------------------------------------------

CountedWork work_of(const perf::SimulatedWork& simulated) {
  CountedWork work{.source = "simulated", .by = "callgrind"};
  const double calls = static_cast<double>(std::max<std::int64_t>(1, simulated.calls));
  if (const perf::Quantity& flop = simulated.quantities.at(Metric::flop); flop.value) {
    for (const auto& [kind, value] : simulated.flop.by_kind) work.flop[to_string(kind.type)] += value / calls;
    if (work.flop.empty()) work.flop["f64"] = 0;
    work.note = flop.note;
  } else {
    work.reason = "W: " + flop.reason;
  }
  add_level(work, "dram", simulated.quantities.at(Metric::dram_bytes), calls);
  add_accesses(work, simulated.flop.bytes / calls);
  explain_no_traffic(work);
  return work;
}

std::optional<WorkEvidence> evidence_of(const perf::SimulatedWork& simulated) {
  const auto flop = simulated.quantities.find(Metric::flop);
  const auto dram = simulated.quantities.find(Metric::dram_bytes);
  if (flop == simulated.quantities.end() || !flop->second.value) return std::nullopt;
  const auto count = [&](const char* event) {
    const auto found = simulated.events.find(event);
    return found == simulated.events.end() ? 0.0 : found->second;
  };
  WorkEvidence work{.flop = *flop->second.value,
                    .instructions = simulated.flop.executions,
                    .arithmetic = simulated.flop.arithmetic,
                    .mispredictions = count("Bcm") + count("Bim"),
                    .bytes_accessed = simulated.flop.bytes,
                    .l1_fills = count("D1mr") + count("D1mw")};
  for (const auto& [kind, value] : simulated.flop.by_kind) work.scalar_flop += kind.bits == 0 ? value : 0;
  if (dram != simulated.quantities.end()) work.dram_bytes = dram->second.value.value_or(0);
  return work;
}

CpuCounts simulated_counts(const CpuCountRequest& request) {
  CpuCounts counts;
  const perf::SimulatedProgram program =
      perf::simulate_program({.argv = request.argv, .seconds_limit = request.seconds_limit});
  counts.notes = program.notes;
  counts.by_region[""] = work_of(program.whole);
  counts.evidence = evidence_of(program.whole);
  for (const auto& [path, region] : program.regions) counts.by_region[path] = work_of(region);
  if (!program.cure.empty()) counts.notes.push_back(program.cure);
  counts.interrupted = program.end.interrupted;
  if (!counts.by_region[""].flop.empty() && program.end.status() != request.exit_status) {
    counts.by_region = {};
    const std::string lost = perf::lost_input();
    counts.by_region[""].reason =
        fmt::format("under valgrind the program ended with {} instead of {}, so it did something else there: {}",
                    program.end.status(), request.exit_status,
                    lost.empty() ? "a program with a sanitizer, or one that checks its own time, does" : lost);
    counts.evidence.reset();
  }
  const std::string& failure = counts.by_region[""].reason;
  counts.reason = failure.empty() ? "the simulated run had no call of this region" : failure;
  return counts;
}

/// Why this program is not simulated; empty: it can be.
std::string refuses_simulation(const CpuCountRequest& request) {
  if (request.uses_gpu && request.mode != CounterMode::simulated)
    return "not simulated: valgrind can't run CUDA's driver. A region can say its work: GABLE_REGION(name, flop, "
           "bytes)";
  const perf::SourceStatus status = perf::simulation_status(perf::read_cache_geometries());
  if (!status.available) return status.reason + (status.cure.empty() ? "" : " (" + status.cure + ")");
  if (request.mode == CounterMode::simulated) return "";
  const double expected = kSlowdown * request.cpu_seconds;
  if (expected <= request.seconds_limit) return "";
  return fmt::format(
      "not simulated: that takes about {}, and --counter-seconds is {:.3g}. Raise it, or give the program less to do",
      seconds_text(expected), request.seconds_limit);
}

// ---- counted --------------------------------------------------------------------------------------------------------

CountedWork work_of(const perf::ProgramCounts::Work& counted) {
  CountedWork work{.source = "counter", .by = "perf_event"};
  if (counted.flop.value) {
    for (const auto& [type, flop] : counted.flop_by_type)
      if (flop > 0) work.flop[type.empty() ? "f64" : type] = flop;
    if (work.flop.empty()) work.flop["f64"] = 0;
    work.note = counted.flop.note;
    if (counted.flop_by_type.count("") != 0)
      work.note += (work.note.empty() ? "" : "; ") + std::string("this CPU's events do not tell types: taken for f64");
  } else {
    work.reason = "W: " + counted.flop.reason;
  }
  add_level(work, "dram", counted.dram_bytes, 1);
  explain_no_traffic(work);
  return work;
}

CpuCounts perf_counts(perf::ProgramCounts& counter, const CpuCountRequest& request) {
  CpuCounts counts;
  for (int run = 0; run < counter.runs(); ++run) {
    const std::string folder = (std::filesystem::path(request.folder) / std::to_string(run)).string();
    std::filesystem::create_directory(folder);
    auto environment = perf::session_environment(folder, perf::SessionMode::time);
    for (auto& variable : counter.environment(run)) environment.push_back(std::move(variable));
    const perf::LaunchEnd end =
        perf::launch({.argv = request.argv, .environment = environment, .own_streams = false, .attach = [&](int pid) {
                        counter.attach(pid, run);
                      }});
    if (end.interrupted) return {.reason = "the program was interrupted while it was counted", .interrupted = true};
    counter.collect(perf::read_session(folder));
  }
  counts.by_region[""] = work_of(counter.program());
  for (const auto& [path, region] : counter.regions()) counts.by_region[path] = work_of(region);
  counts.reason = "the counted run had no call of this region";
  return counts;
}

bool counts_something(const CpuCounts& counts) {
  const auto whole = counts.by_region.find("");
  return whole != counts.by_region.end() && whole->second.is_point();
}

}  // namespace

void add_accesses(CountedWork& work, double bytes) {
  constexpr double kStray = 4096;       // bytes a call
  constexpr double kStrayShare = 1e-3;  // of the bytes that loads and stores move
  const auto dram = work.bytes.find("dram");
  if (dram == work.bytes.end() || bytes <= 0) return;
  if (dram->second < kStray && dram->second < kStrayShare * bytes) dram->second = 0;
  work.bytes["l1"] = bytes;
}

void require_source(CounterMode mode) {
  perf::SourceStatus status;
  status.available = true;
  if (mode == CounterMode::simulated) status = perf::simulation_status(perf::read_cache_geometries());
  if (mode == CounterMode::counter && !perf::has_nvidia_driver()) {
    const perf::ProgramCounts counter;
    if (counter.runs() == 0) {
      status = counter.status();
      status.available = false;
    }
  }
  if (status.available) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("--counters {}: no such source works here: {}{}; --counters auto takes what there is",
                          mode == CounterMode::simulated ? "simulated" : "counter", status.reason,
                          status.cure.empty() ? "" : " (" + status.cure + ")"));
}

CpuCounts count_cpu(const CpuCountRequest& request, const std::function<void(const std::string& what)>& progress) {
  std::string reason;
  if (request.mode != CounterMode::simulated) {
    perf::ProgramCounts counter;
    if (counter.runs() > 0) {
      progress("counting");
      CpuCounts counts = perf_counts(counter, request);
      if (counts.interrupted || counts_something(counts) || request.mode == CounterMode::counter) return counts;
      reason = counts.by_region.at("").reason;
    } else {
      reason = counter.status().reason;
    }
    if (request.mode == CounterMode::counter) return {.reason = reason};
  }
  if (const std::string refusal = refuses_simulation(request); !refusal.empty()) {
    return {.reason = reason.empty() ? refusal : reason + "; " + refusal};
  }
  progress(fmt::format("simulating, at most {:.6g} s", request.seconds_limit));
  return simulated_counts(request);
}

}  // namespace gable::bench
