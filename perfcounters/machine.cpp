// Puts the parts of machine.h together: see machine/parts.h. Memory and system are described here.
#include "perfcounters/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "perfcounters/machine/files.h"
#include "perfcounters/machine/memory.h"
#include "perfcounters/machine/parts.h"

namespace gable::perf {
namespace {

struct MemoryLimit {
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  std::size_t rest =
      limit;  ///< of the limit: files that were read lately (inactive) are given back when memory is short
};

void add_limit(const std::string& folder, const char* limit_file, const char* used_file, MemoryLimit& least) {
  const std::size_t limit = parse_size(first_line(folder + limit_file).value_or(""));
  if (limit == 0) return;
  const std::size_t used = parse_size(first_line(folder + used_file).value_or(""));
  const std::size_t inactive = parse_size(value_of(folder + "/memory.stat", "inactive_file", ' '));
  const std::size_t held = used - std::min(used, inactive);
  least.limit = std::min(least.limit, limit);
  least.rest = std::min(least.rest, limit - std::min(limit, held));
}

/// The limits of the process's cgroup and of those around it, as far as they can be seen.
MemoryLimit cgroup_memory(const std::string& root) {
  MemoryLimit least;
  std::ifstream own(root + "/proc/self/cgroup");
  std::vector<std::string> v2{""}, v1{""};
  for (std::string line; std::getline(own, line);) {
    const bool is_v2 = line.starts_with("0::/");
    const std::size_t v1_path = line.find(":memory:/");
    if (!is_v2 && v1_path == std::string::npos) continue;
    std::string path = line.substr(is_v2 ? 3 : v1_path + 8);
    for (; path.size() > 1; path.erase(path.rfind('/'))) (is_v2 ? v2 : v1).push_back(path);
  }
  for (const std::string& path : v2) add_limit(root + "/sys/fs/cgroup" + path, "/memory.max", "/memory.current", least);
  for (const std::string& path : v1)
    add_limit(root + "/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes", "/memory.usage_in_bytes", least);
  return least;
}

std::size_t meminfo(const std::string& root, const char* key) {
  return parse_size(value_of(root + "/proc/meminfo", key, ':')) << 10;
}

void describe_memory(Machine& machine) {
  const std::size_t total = meminfo("", "MemTotal");
  const MemoryLimit cgroup = cgroup_memory("");
  machine.memory.bytes = std::min(total, cgroup.limit);
  machine.memory.available_bytes = available_memory();
  if (cgroup.limit < total)
    machine.notes.push_back(fmt::format("the cgroup limits memory to {} MiB", cgroup.limit >> 20));
}

std::string cpu_name() {
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
  machine.cpu.architecture = names.machine;
  machine.system.kernel = fmt::format("{} {}", names.sysname, names.release);
  machine.system.os = value_of("/etc/os-release", "PRETTY_NAME", '=');
  machine.system.compiler = compiler();
  machine.system.date = date_now();
}

}  // namespace

bool Cpu::has(const std::string& feature) const { return std::find(simd.begin(), simd.end(), feature) != simd.end(); }

std::size_t available_memory(const std::string& root) {
  return std::min(meminfo(root, "MemAvailable"), cgroup_memory(root).rest);
}

Machine describe_machine() {
  Machine machine;
  machine.cpu.name = cpu_name();
  describe_system(machine);
  describe_isa(machine);
  describe_threads(machine);
  describe_caches(machine);
  describe_memory(machine);
  machine.cpu.clock_hz = measure_clock_hz();
  machine.cpu.clock_method = "chain of dependent register additions, one thread";
  if (machine.system.virtual_machine)
    machine.notes.push_back(
        "virtual machine: cache sizes, core and thread counts are what the hypervisor reports, and "
        "the last-level cache may be shared with other guests");
  return machine;
}

}  // namespace gable::perf
