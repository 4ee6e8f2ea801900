// Puts the parts of machine.h together: see machine/parts.h. Memory and system are described here.
#include "perfcounters/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <limits>
#include <string>
#include <utility>

#include "perfcounters/machine/files.h"
#include "perfcounters/machine/parts.h"

namespace gable::perf {
namespace {

struct MemoryLimit {
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  std::size_t used = 0;
};

MemoryLimit cgroup_memory() {
  constexpr std::array<std::pair<const char*, const char*>, 2> kFiles{
      {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}};
  for (const auto& [limit_file, used_file] : kFiles) {
    const std::size_t limit = parse_size(first_line(limit_file).value_or(""));
    if (limit > 0) return {limit, parse_size(first_line(used_file).value_or(""))};
  }
  return {};
}

void describe_memory(Machine& machine) {
  const std::size_t total = parse_size(value_of("/proc/meminfo", "MemTotal", ':')) << 10;
  const std::size_t available = parse_size(value_of("/proc/meminfo", "MemAvailable", ':')) << 10;
  const MemoryLimit cgroup = cgroup_memory();
  machine.memory_bytes = std::min(total, cgroup.limit);
  machine.memory_available_bytes = std::min(available, cgroup.limit - std::min(cgroup.limit, cgroup.used));
  if (cgroup.limit < total)
    machine.notes.push_back(fmt::format("the cgroup limits memory to {} MiB", cgroup.limit >> 20));
}

std::string cpu_model() {
  std::string model = value_of("/proc/cpuinfo", "model name", ':');
  if (model.empty()) model = value_of("/proc/cpuinfo", "cpu model", ':');
  if (model.empty()) model = "part " + value_of("/proc/cpuinfo", "CPU part", ':');
  return model;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string date_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void describe_system(Machine& machine) {
  utsname names{};
  uname(&names);
  machine.architecture = names.machine;
  machine.kernel = fmt::format("{} {}", names.sysname, names.release);
  machine.os = value_of("/etc/os-release", "PRETTY_NAME", '=');
  machine.compiler = compiler();
  machine.date = date_now();
}

}  // namespace

bool Machine::has(const std::string& feature) const {
  return std::find(simd.begin(), simd.end(), feature) != simd.end();
}

Machine describe_machine() {
  Machine machine;
  machine.cpu_model = cpu_model();
  describe_system(machine);
  describe_isa(machine);
  describe_threads(machine);
  describe_caches(machine);
  describe_memory(machine);
  machine.clock_hz = measure_clock_hz();
  machine.clock_method = "chain of dependent register additions, one thread";
  if (machine.virtual_machine)
    machine.notes.push_back(
        "virtual machine: cache sizes, core and thread counts are what the hypervisor reports, and "
        "the last-level cache may be shared with other guests");
  return machine;
}

}  // namespace gable::perf
