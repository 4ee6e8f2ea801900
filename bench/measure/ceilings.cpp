// See ceilings.h.
#include "bench/measure/ceilings.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>

#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

constexpr const char* kWaitedLaunch = "launch and wait";

/// The unit in a ceiling's name: "avx2 fma" for "avx2 fma f32" of dtype f32.
std::string unit_of(const perf::Ceiling& ceiling) {
  const std::string suffix = " " + ceiling.dtype;
  return ceiling.name.ends_with(suffix) ? ceiling.name.substr(0, ceiling.name.size() - suffix.size())
                                        : ceiling.isa_or_level;
}

std::string name_of(const perf::Ceiling& ceiling) {
  if (ceiling.threads == 0) return ceiling.name;
  return fmt::format("{}, {} thread{}", ceiling.name, ceiling.threads, ceiling.threads == 1 ? "" : "s");
}

std::optional<double> if_positive(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

CeilingEntry entry_of(const std::string& device, DeviceKind kind, const perf::Ceiling& ceiling) {
  const bool compute = ceiling.kind == "compute";
  CeilingEntry entry{.device = device,
                     .device_kind = kind,
                     .name = name_of(ceiling),
                     .kind = ceiling.kind,
                     .level = compute ? "" : ceiling.isa_or_level,
                     .isa = compute ? unit_of(ceiling) : "",
                     .dtype = ceiling.dtype,
                     .limit = {.value = ceiling.value,
                               .q1 = ceiling.q1,
                               .q3 = ceiling.q3,
                               .runs = ceiling.runs,
                               .theoretical = if_positive(ceiling.theoretical),
                               .formula = ceiling.formula,
                               .note = ceiling.note}};
  if (ceiling.threads > 0) entry.threads = ceiling.threads;
  if (ceiling.working_set_bytes > 0) entry.working_set_bytes = static_cast<double>(ceiling.working_set_bytes);
  return entry;
}

RateEntry entry_of(const std::string& device, const Rate& rate) {
  return {.device = device,
          .device_kind = DeviceKind::gpu,
          .name = rate.name,
          .unit = rate.unit,
          .limit = {.value = rate.value.seconds,
                    .q1 = rate.value.q1,
                    .q3 = rate.value.q3,
                    .runs = rate.value.runs,
                    .theoretical = if_positive(rate.theoretical),
                    .formula = rate.formula,
                    .note = rate.note}};
}

perf::Ceiling roof_of(const Ceiling& measured) {
  const bool compute = measured.kind == Ceiling::Kind::compute;
  const perf::Timing value = perf::summarize(measured.samples);
  perf::Ceiling roof{.name = measured.name,
                     .kind = compute ? "compute" : "bandwidth",
                     .isa_or_level = compute ? measured.unit : measured.level,
                     .dtype = compute ? measured.dtype : "f32",
                     .threads = 0,
                     .value = value.seconds,
                     .q1 = value.q1,
                     .q3 = value.q3,
                     .runs = value.runs,
                     .theoretical = measured.theoretical,
                     .formula = measured.formula};
  roof.note = measured.note;
  return roof;
}

std::vector<perf::Ceiling> cpu_ceilings(const perf::Machine& machine, bool quick, const CeilingCallbacks& callbacks) {
  perf::CeilingOptions options;
  options.quick = quick;
  options.progress = [&](const std::string& next, int done, int total) {
    callbacks.progress(static_cast<std::size_t>(done), static_cast<std::size_t>(total), "ceiling " + next);
  };
  return perf::measure_ceilings(machine, options);
}

/// Tries each device of this GPU until one has loops.
GpuCeilings ceilings_of_gpu(int index, bool quick, const CeilingCallbacks& callbacks) {
  std::size_t done = 0;
  CeilingRequest request{.quick = quick};
  request.next = [&](const std::string& next) {
    callbacks.progress(done, done + 1, "ceiling " + next);
    ++done;
  };
  for (const DeviceInfo& info : devices()) {
    if (!info.available || info.memory != Memory{Memory::Kind::cuda, index}) continue;
    const std::vector<Ceiling> measured = device_ceilings(open(info.uri), request);
    if (!measured.empty()) return gpu_ceilings(info, measured);
  }
  throw Error(ErrorCode::unsupported, "no backend has loops for it");
}

void keep_higher(std::vector<perf::Ceiling>& ceilings, const std::vector<perf::Ceiling>& again) {
  for (perf::Ceiling& first : ceilings) {
    for (const perf::Ceiling& second : again) {
      if (second.name != first.name || second.threads != first.threads || second.value <= first.value) continue;
      first = second;
      first.note += (first.note.empty() ? "" : "; ") + std::string(
                                                           "measured twice, the higher is kept: a layer had "
                                                           "passed the first roof");
    }
  }
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
    gpu.rates.push_back({one.name, one.unit, perf::summarize(one.samples), one.theoretical, one.formula, one.note});
    if (one.name == kWaitedLaunch) gpu.overhead_seconds = gpu.rates.back().value.seconds;
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
                                 const CeilingCallbacks& callbacks) {
  MachineCeilings ceilings;
  if (scope.cpu) ceilings.cpu = cpu_ceilings(machine, quick, callbacks);
  std::vector<int> gpus = scope.gpus;
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  for (const int index : gpus) {
    if (perf::interrupting_signal() != 0) break;
    try {
      ceilings.gpus.push_back(ceilings_of_gpu(index, quick, callbacks));
    } catch (const Error& error) {
      callbacks.print(fmt::format("no ceilings of GPU {}: {}", index, error.what()));
    } catch (const perf::Interrupted&) {
      callbacks.print(fmt::format("no ceilings of GPU {}: interrupted", index));
    }
  }
  return ceilings;
}

void keep_higher(MachineCeilings& ceilings, const MachineCeilings& again) {
  keep_higher(ceilings.cpu, again.cpu);
  for (std::size_t i = 0; i < std::min(ceilings.gpus.size(), again.gpus.size()); ++i)
    keep_higher(ceilings.gpus[i].roofs, again.gpus[i].roofs);
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
  for (const GpuCeilings& gpu : ceilings.gpus) {
    for (const Rate& rate : gpu.rates) entries.push_back(entry_of(gpu.device, rate));
  }
  return entries;
}

}  // namespace gable::bench
