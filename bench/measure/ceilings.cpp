// See ceilings.h.
#include "bench/measure/ceilings.h"

#include <fmt/format.h>
#include <gable/backend.h>
#include <gable/error.h>

#include <algorithm>
#include <charconv>

#include "bench/report/study.h"
#include "bench/report/text.h"

namespace gable::bench {
namespace {

using nlohmann::json;

constexpr const char* kWaitedLaunch = "launch and wait";

json positive_or_null(double value) { return value > 0 ? json(value) : json(nullptr); }

/// The name says it all: "avx2 fma f32" of dtype f32 is the unit "avx2 fma".
std::string unit_of(const perf::Ceiling& ceiling) {
  const std::string suffix = " " + ceiling.dtype;
  return ceiling.name.ends_with(suffix) ? ceiling.name.substr(0, ceiling.name.size() - suffix.size())
                                        : ceiling.isa_or_level;
}

std::string name_of(const perf::Ceiling& ceiling) {
  if (ceiling.threads == 0) return ceiling.name;
  return fmt::format("{}, {} thread{}", ceiling.name, ceiling.threads, ceiling.threads == 1 ? "" : "s");
}

json ceiling_record(const std::string& device, const perf::Ceiling& ceiling) {
  const bool compute = ceiling.kind == "compute";
  json record{{"device", device},
              {"name", name_of(ceiling)},
              {"kind", ceiling.kind},
              {"dtype", ceiling.dtype},
              {"threads", ceiling.threads > 0 ? json(ceiling.threads) : json(nullptr)},
              {"value", ceiling.value},
              {"q1", ceiling.q1},
              {"q3", ceiling.q3},
              {"runs", ceiling.runs},
              {"theoretical", positive_or_null(ceiling.theoretical)},
              {"formula", ceiling.formula}};
  record[compute ? "isa" : "level"] = compute ? unit_of(ceiling) : ceiling.isa_or_level;
  if (!ceiling.note.empty()) record["note"] = ceiling.note;
  if (ceiling.working_set_bytes > 0) record["working_set_bytes"] = ceiling.working_set_bytes;
  return record;
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

std::vector<perf::Ceiling> cpu_ceilings(const perf::Machine& machine, bool quick, Console& console) {
  perf::CeilingOptions options;
  options.quick = quick;
  options.progress = [&](const std::string& next, int done, int total) {
    console.progress(static_cast<std::size_t>(done), static_cast<std::size_t>(total), "ceiling " + next);
  };
  std::vector<perf::Ceiling> ceilings = perf::measure_ceilings(machine, options);
  console.finish_progress();
  return ceilings;
}

/// The GPU that a URI means; 0 without a selector, as the backends have it.
int index_of(const std::string& uri) {
  const std::string selector = parse_device_uri(uri).selector;
  int index = 0;
  std::from_chars(selector.data(), selector.data() + selector.size(), index);
  return index;
}

/// Each device of this GPU is asked, until one has loops.
GpuCeilings ceilings_of_gpu(int index, bool quick, Console& console) {
  std::size_t done = 0;
  CeilingRequest request{.quick = quick};
  request.next = [&](const std::string& next) {
    console.progress(done, done + 1, "ceiling " + next);
    ++done;
  };
  for (const DeviceInfo& info : devices()) {
    if (!info.available || info.memory != Memory{Memory::Kind::cuda, index}) continue;
    const std::vector<Ceiling> measured = device_ceilings(open(info.uri), request);
    console.finish_progress();
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

const GpuCeilings* MachineCeilings::of_gpu(const std::string& uri) const {
  const auto found = std::find_if(
      gpus.begin(), gpus.end(), [index = index_of(uri)](const GpuCeilings& gpu) { return gpu.memory.index == index; });
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

CeilingScope scope_of(const std::vector<std::string>& uris) {
  CeilingScope scope;
  for (const std::string& uri : uris) {
    if (report::is_gpu(uri)) {
      scope.gpus.push_back(index_of(uri));
    } else {
      scope.cpu = true;
    }
  }
  return scope;
}

MachineCeilings measure_ceilings(const perf::Machine& machine, const CeilingScope& scope, bool quick,
                                 Console& console) {
  MachineCeilings ceilings;
  if (scope.cpu) ceilings.cpu = cpu_ceilings(machine, quick, console);
  std::vector<int> gpus = scope.gpus;
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  for (const int index : gpus) {
    try {
      ceilings.gpus.push_back(ceilings_of_gpu(index, quick, console));
    } catch (const Error& error) {
      console.finish_progress();
      console.print(fmt::format("no ceilings of GPU {}: {}", index, error.what()));
    }
  }
  return ceilings;
}

void keep_higher(MachineCeilings& ceilings, const MachineCeilings& again) {
  keep_higher(ceilings.cpu, again.cpu);
  for (std::size_t i = 0; i < std::min(ceilings.gpus.size(), again.gpus.size()); ++i)
    keep_higher(ceilings.gpus[i].roofs, again.gpus[i].roofs);
}

void print_ceilings(const MachineCeilings& ceilings, Console& console) {
  const auto line = [&](const std::string& device, const std::string& name, int threads, const std::string& measured,
                        const std::string& theoretical, const std::string& formula) {
    console.print(fmt::format("{:<8} {:<26} {:>8} {:>16} {:>16}  {}", device, name,
                              threads > 0 ? std::to_string(threads) : "-", measured, theoretical, formula));
  };
  const auto roof = [&](const std::string& device, const perf::Ceiling& c) {
    const auto text = c.kind == "compute" ? report::flops_text : report::bandwidth_text;
    line(device, c.name, c.threads, text(c.value), c.theoretical > 0 ? text(c.theoretical) : "-", c.formula);
  };
  console.print(fmt::format("{:<8} {:<26} {:>8} {:>16} {:>16}  {}", "device", "ceiling", "threads", "measured",
                            "theoretical", "formula"));
  for (const perf::Ceiling& c : ceilings.cpu) roof("cpu", c);
  for (const GpuCeilings& gpu : ceilings.gpus) {
    for (const perf::Ceiling& c : gpu.roofs) roof(gpu.device, c);
    for (const Rate& r : gpu.rates) {
      line(gpu.device, r.name, 0, report::rate_text(r.value.seconds, r.unit),
           r.theoretical > 0 ? report::rate_text(r.theoretical, r.unit) : "-", r.formula);
    }
  }
}

json ceilings_record(const MachineCeilings& ceilings) {
  json list = json::array();
  for (const perf::Ceiling& ceiling : ceilings.cpu) list.push_back(ceiling_record("cpu", ceiling));
  for (const GpuCeilings& gpu : ceilings.gpus) {
    for (const perf::Ceiling& roof : gpu.roofs) list.push_back(ceiling_record(gpu.device, roof));
  }
  return list;
}

json rates_record(const MachineCeilings& ceilings) {
  json list = json::array();
  for (const GpuCeilings& gpu : ceilings.gpus) {
    for (const Rate& rate : gpu.rates) {
      json record{{"device", gpu.device},    {"name", rate.name},
                  {"unit", rate.unit},       {"value", rate.value.seconds},
                  {"q1", rate.value.q1},     {"q3", rate.value.q3},
                  {"runs", rate.value.runs}, {"theoretical", positive_or_null(rate.theoretical)},
                  {"formula", rate.formula}};
      if (!rate.note.empty()) record["note"] = rate.note;
      list.push_back(std::move(record));
    }
  }
  return list;
}

}  // namespace gable::bench
