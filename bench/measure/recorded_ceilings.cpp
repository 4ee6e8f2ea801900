// See recorded_ceilings.h.
#include "bench/measure/recorded_ceilings.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace gable::bench {
namespace {

/// "avx2 fma f32, 2 threads" -> "avx2 fma f32", as entries are named.
std::string without_threads(const std::string& name) { return name.substr(0, name.rfind(", ")); }

perf::Ceiling ceiling_of(const CeilingEntry& entry) {
  return {.name = entry.threads ? without_threads(entry.name) : entry.name,
          .kind = entry.kind,
          .isa_or_level = entry.is_bandwidth() ? entry.level : entry.isa.substr(0, entry.isa.find(' ')),
          .dtype = entry.dtype,
          .threads = entry.threads.value_or(0),
          .limit = entry.limit,
          .working_set_bytes = static_cast<std::size_t>(entry.working_set_bytes.value_or(0)),
          .level_bytes = entry.level_bytes.value_or(0)};
}

/// "cuda:1" -> 1.
int gpu_index(const std::string& device) {
  const std::size_t colon = device.find(':');
  int index = 0;
  if (colon != std::string::npos) std::from_chars(device.data() + colon + 1, device.data() + device.size(), index);
  return index;
}

GpuCeilings& gpu_of(MachineCeilings& ceilings, const std::string& device) {
  const auto found = std::find_if(ceilings.gpus.begin(), ceilings.gpus.end(),
                                  [&](const GpuCeilings& gpu) { return gpu.device == device; });
  if (found != ceilings.gpus.end()) return *found;
  GpuCeilings gpu;
  gpu.device = device;
  gpu.memory = {Memory::Kind::cuda, gpu_index(device)};
  return ceilings.gpus.emplace_back(std::move(gpu));
}

/// "start and join 2 threads" -> 2; 0 for other rates.
int team_of(const std::string& rate) {
  constexpr std::string_view kBegin = "start and join ";
  int threads = 0;
  if (rate.starts_with(kBegin)) std::from_chars(rate.data() + kBegin.size(), rate.data() + rate.size(), threads);
  return threads;
}

}  // namespace

MachineCeilings ceilings_of(const std::vector<CeilingEntry>& entries, const std::vector<RateEntry>& rates) {
  MachineCeilings ceilings;
  for (const CeilingEntry& entry : entries) {
    std::vector<perf::Ceiling>& roofs = entry.on_gpu() ? gpu_of(ceilings, entry.device).roofs : ceilings.cpu;
    if (entry.on_gpu() && entry.level == "l2") gpu_of(ceilings, entry.device).l2_bytes = entry.level_bytes.value_or(0);
    roofs.push_back(ceiling_of(entry));
  }
  for (const RateEntry& rate : rates) {
    if (rate.device_kind == DeviceKind::gpu)
      gpu_of(ceilings, rate.device).rates.push_back({rate.name, rate.unit, rate.limit});
    if (rate.device_kind == DeviceKind::gpu && rate.name == kWaitedLaunch)
      gpu_of(ceilings, rate.device).overhead_seconds = rate.limit.value;
    if (const int team = rate.device_kind == DeviceKind::cpu ? team_of(rate.name) : 0; team > 0) {
      perf::Timing& start = ceilings.team_starts[team];
      if (start.seconds <= 0 || rate.limit.value < start.seconds) {
        start.seconds = rate.limit.value;
        start.q1 = rate.limit.q1;
        start.q3 = rate.limit.q3;
        start.runs = rate.limit.runs;
      }
    }
  }
  return ceilings;
}

perf::Machine machine_of(const MachineEntry& entry) {
  perf::Machine machine;
  const auto bytes = [&](const char* cache) {
    const auto found = entry.caches.find(cache);
    return found == entry.caches.end() ? std::size_t{0} : static_cast<std::size_t>(found->second);
  };
  machine.caches.l1d.bytes = bytes("l1d");
  machine.caches.l2.bytes = bytes("l2");
  machine.caches.l3.bytes = bytes("l3");
  const auto instances = entry.cache_instances.find("l3");
  machine.caches.l3.instances = instances == entry.cache_instances.end() ? 1 : instances->second;
  machine.threads.cores = entry.cores;
  machine.threads.available = entry.threads;
  return machine;
}

}  // namespace gable::bench
