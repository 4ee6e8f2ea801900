// See ceilings.h.
#include "bench/measure/ceilings.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "bench/common/text.h"
#include "perfcounters/ceilings/ladder.h"

#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

/// The unit in a ceiling's name: "avx2 fma" for "avx2 fma f32" of dtype f32.
std::string unit_of(const perf::Ceiling& ceiling) {
  const std::string suffix = " " + ceiling.dtype;
  return ceiling.name.ends_with(suffix) ? ceiling.name.substr(0, ceiling.name.size() - suffix.size())
                                        : ceiling.isa_or_level;
}

std::optional<double> if_positive(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

CeilingEntry entry_of(const std::string& device, DeviceKind kind, const perf::Ceiling& ceiling) {
  const bool compute = ceiling.kind == "compute";
  CeilingEntry entry{.device = device,
                     .device_kind = kind,
                     .name = perf::name_with_threads(ceiling),
                     .kind = ceiling.kind,
                     .level = compute ? "" : ceiling.isa_or_level,
                     .isa = compute ? unit_of(ceiling) : "",
                     .dtype = ceiling.dtype,
                     .limit = ceiling.limit};
  if (ceiling.threads > 0) entry.threads = ceiling.threads;
  entry.level_bytes = if_positive(ceiling.level_bytes);
  if (ceiling.working_set_bytes > 0) entry.working_set_bytes = static_cast<double>(ceiling.working_set_bytes);
  return entry;
}

RateEntry entry_of(const std::string& device, const Rate& rate) {
  return {.device = device, .device_kind = DeviceKind::gpu, .name = rate.name, .unit = rate.unit, .limit = rate.limit};
}

perf::MeasuredLimit limit_of(const perf::Timing& timing) {
  return {.value = timing.seconds, .q1 = timing.q1, .q3 = timing.q3, .runs = timing.runs};
}

perf::MeasuredLimit limit_of(const Ceiling& measured) {
  perf::MeasuredLimit limit = limit_of(perf::summarize(measured.samples));
  limit.theoretical = if_positive(measured.theoretical);
  limit.formula = measured.formula;
  limit.note = measured.note;
  return limit;
}

perf::Ceiling roof_of(const Ceiling& measured) {
  const bool compute = measured.kind == Ceiling::Kind::compute;
  return {.name = measured.name,
          .kind = compute ? "compute" : "bandwidth",
          .isa_or_level = compute ? measured.unit : measured.level,
          .dtype = compute ? measured.dtype : "f32",
          .threads = 0,
          .limit = limit_of(measured),
          .level_bytes = static_cast<double>(measured.level_bytes)};
}

std::vector<perf::Ceiling> cpu_ceilings(const perf::Machine& machine, bool quick, const CeilingCallbacks& callbacks,
                                        const MachineCeilings* known) {
  perf::CeilingOptions options;
  options.quick = quick;
  if (known != nullptr) options.only = perf::worth_repeating(known->cpu);
  options.progress = [&](const std::string& next, int done, int total) {
    callbacks.progress(static_cast<std::size_t>(done), static_cast<std::size_t>(total), "ceiling " + next);
  };
  std::vector<perf::Ceiling> ceilings = perf::measure_ceilings(machine, options);
  const auto per_joule = callbacks.per_joule ? callbacks.per_joule(std::nullopt) : nullptr;
  if (known != nullptr || !per_joule) return ceilings;
  // Energy takes a second a loop, so only the roofs' is measured.
  options.only = perf::worth_repeating(ceilings);
  options.quick = true;
  options.hold = [&](perf::Ceiling& ceiling, const std::function<double()>& work) {
    ceiling.limit.per_joule = if_positive(per_joule(work).value_or(0));
  };
  perf::add_round(ceilings, perf::measure_ceilings(machine, options));
  return ceilings;
}

/// Starting and joining an empty team, for one thread and for all.
std::map<int, perf::Timing> measure_team_starts(const perf::Machine& machine) {
  constexpr int kSamples = 21, kTeams = 50;
  std::map<int, perf::Timing> starts;
  for (const int threads : {1, machine.threads.available}) {
    std::vector<double> samples;
    for (int sample = 0; sample < kSamples; ++sample) {
      const auto begin = std::chrono::steady_clock::now();
      for (int team = 0; team < kTeams; ++team) {
#pragma omp parallel num_threads(threads)
        std::atomic_signal_fence(std::memory_order_seq_cst);  // keeps the compiler from removing the team
      }
      samples.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTeams);
    }
    starts[threads] = perf::summarize(std::move(samples));
  }
  return starts;
}

RateEntry team_start_entry(int threads, const perf::Timing& start) {
  perf::MeasuredLimit limit = limit_of(start);
  limit.formula = "none: a cost, not a rate of the hardware";
  return {.device = "cpu",
          .device_kind = DeviceKind::cpu,
          .name = "start and join " + threads_text(threads),
          .unit = "s",
          .limit = limit};
}

/// Tries each device of this GPU until one has loops.
GpuCeilings ceilings_of_gpu(int index, bool quick, const CeilingCallbacks& callbacks, bool first_round) {
  std::size_t done = 0;
  CeilingRequest request{.quick = quick};
  request.next = [&](const std::string& next) {
    callbacks.progress(done, done + 1, "ceiling " + next);
    ++done;
  };
  std::map<std::string, double> found;
  const auto per_joule = callbacks.per_joule && first_round ? callbacks.per_joule(index) : nullptr;
  if (per_joule) {
    request.hold = [&](const std::string& name, const std::function<double()>& work) {
      found[name] = per_joule(work).value_or(0);
    };
  }
  for (const DeviceInfo& info : devices()) {
    if (!info.available || info.memory != Memory{Memory::Kind::cuda, index}) continue;
    const std::vector<Ceiling> measured = device_ceilings(open(info.uri), request);
    if (measured.empty()) continue;
    GpuCeilings gpu = gpu_ceilings(info, measured);
    for (perf::Ceiling& roof : gpu.roofs) roof.limit.per_joule = if_positive(found[roof.name]);
    return gpu;
  }
  throw Error(ErrorCode::unsupported, "no backend has loops for it");
}

}  // namespace

const GpuCeilings* MachineCeilings::of_gpu(std::optional<int> index) const {
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [index](const GpuCeilings& gpu) { return gpu.memory.index == index; });
  return found == gpus.end() ? nullptr : &*found;
}

GpuCeilings gpu_ceilings(const DeviceInfo& device, const std::vector<Ceiling>& measured) {
  GpuCeilings gpu{.device = device.uri, .memory = device.memory, .roofs = {}, .rates = {}};
  for (const Ceiling& one : measured) {
    if (one.kind != Ceiling::Kind::rate) {
      gpu.roofs.push_back(roof_of(one));
      if (one.level == "l2") gpu.l2_bytes = static_cast<double>(one.level_bytes);
      continue;
    }
    gpu.rates.push_back({one.name, one.unit, limit_of(one)});
    if (one.name == kWaitedLaunch) gpu.overhead_seconds = gpu.rates.back().limit.value;
  }
  return gpu;
}

CeilingScope whole_machine() {
  CeilingScope scope{.cpu = true, .gpus = {}};
  for (const DeviceInfo& info : devices()) {
    if (info.available && info.memory.kind == Memory::Kind::cuda) scope.gpus.push_back(info.memory.index);
  }
  return scope;
}

CeilingScope scope_of(const std::vector<Memory>& memories) {
  CeilingScope scope;
  for (const Memory& memory : memories) {
    if (kind_of(memory) == DeviceKind::gpu) {
      scope.gpus.push_back(memory.index);
    } else {
      scope.cpu = true;
    }
  }
  return scope;
}

CeilingScope scope_of(const std::vector<OpenDevice>& devices) {
  std::vector<Memory> memories;
  for (const OpenDevice& device : devices) memories.push_back(device.device.info().memory);
  return scope_of(memories);
}

MachineCeilings measure_ceilings(const perf::Machine& machine, const CeilingScope& scope, bool quick,
                                 const CeilingCallbacks& callbacks, const MachineCeilings* known) {
  MachineCeilings ceilings;
  if (scope.cpu) {
    ceilings.cpu = cpu_ceilings(machine, quick, callbacks, known);
    ceilings.team_starts = measure_team_starts(machine);
  }
  std::vector<int> gpus = scope.gpus;
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  for (const int index : gpus) {
    if (perf::interrupting_signal() != 0) break;
    try {
      ceilings.gpus.push_back(ceilings_of_gpu(index, quick, callbacks, known == nullptr));
    } catch (const Error& error) {
      callbacks.print(fmt::format("no ceilings of GPU {}: {}", index, error.what()));
    } catch (const perf::Interrupted&) {
      callbacks.print(fmt::format("no ceilings of GPU {}: interrupted", index));
    }
  }
  return ceilings;
}

void add_round(MachineCeilings& ceilings, const MachineCeilings& again) {
  perf::add_round(ceilings.cpu, again.cpu);
  for (const auto& [threads, start] : again.team_starts) {
    perf::Timing& known = ceilings.team_starts[threads];
    if (known.seconds <= 0 || start.seconds < known.seconds) known = start;
  }
  for (GpuCeilings& gpu : ceilings.gpus) {
    if (const GpuCeilings* same = again.of_gpu(gpu.memory.index)) perf::add_round(gpu.roofs, same->roofs);
  }
}

void add_missing(MachineCeilings& ceilings, const MachineCeilings& others) {
  const auto add = [](auto& all, const auto& more, const auto& same) {
    for (const auto& one : more) {
      if (std::none_of(all.begin(), all.end(), [&](const auto& known) { return same(known, one); })) all.push_back(one);
    }
  };
  const auto same_roof = [](const perf::Ceiling& a, const perf::Ceiling& b) {
    return a.name == b.name && a.threads == b.threads;
  };
  const auto same_rate = [](const Rate& a, const Rate& b) { return a.name == b.name; };
  const auto same_gpu = [](const GpuCeilings& a, const GpuCeilings& b) { return a.memory == b.memory; };
  add(ceilings.cpu, others.cpu, same_roof);
  ceilings.team_starts.insert(others.team_starts.begin(), others.team_starts.end());
  for (GpuCeilings& gpu : ceilings.gpus) {
    const GpuCeilings* same = others.of_gpu(gpu.memory.index);
    if (same == nullptr) continue;
    add(gpu.roofs, same->roofs, same_roof);
    add(gpu.rates, same->rates, same_rate);
    if (gpu.l2_bytes <= 0) gpu.l2_bytes = same->l2_bytes;
    if (gpu.overhead_seconds <= 0) gpu.overhead_seconds = same->overhead_seconds;
  }
  add(ceilings.gpus, others.gpus, same_gpu);
}

int set_doubts(MachineCeilings& ceilings) {
  const auto doubts_of = [](std::vector<perf::Ceiling>& roofs) {
    perf::set_doubts(roofs);
    return static_cast<int>(
        std::count_if(roofs.begin(), roofs.end(), [](const auto& c) { return !c.limit.doubt.empty(); }));
  };
  int doubts = doubts_of(ceilings.cpu);
  for (GpuCeilings& gpu : ceilings.gpus) doubts += doubts_of(gpu.roofs);
  return doubts;
}

std::vector<CeilingEntry> ceiling_entries(const MachineCeilings& ceilings) {
  std::vector<CeilingEntry> entries;
  for (const perf::Ceiling& roof : ceilings.cpu) entries.push_back(entry_of("cpu", DeviceKind::cpu, roof));
  for (const GpuCeilings& gpu : ceilings.gpus) {
    for (const perf::Ceiling& roof : gpu.roofs) entries.push_back(entry_of(gpu.device, DeviceKind::gpu, roof));
  }
  return entries;
}

std::vector<RateEntry> rate_entries(const MachineCeilings& ceilings) {
  std::vector<RateEntry> entries;
  for (const auto& [threads, start] : ceilings.team_starts) entries.push_back(team_start_entry(threads, start));
  for (const GpuCeilings& gpu : ceilings.gpus) {
    for (const Rate& rate : gpu.rates) entries.push_back(entry_of(gpu.device, rate));
  }
  return entries;
}

}  // namespace gable::bench
