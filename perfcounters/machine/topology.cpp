// Threads, cores and caches from the scheduler, sysfs and the cgroup.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/machine/files.h"
#include "perfcounters/machine/parts.h"

namespace gable::perf {
namespace {

std::vector<int> affinity_cpus() {
  // The mask must be as large as the kernel's, which can exceed the 1024 CPUs of a cpu_set_t.
  for (int size = 1024; size <= (1 << 20); size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(size));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    std::vector<int> cpus;
    const bool read = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; read && cpu < size; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (read) return cpus;
  }
  return {0};
}

// The cgroup's CPU quota (v2, then v1) in CPUs; nothing if unlimited.
std::optional<double> cgroup_cpu_quota() {
  if (const auto line = first_line("/sys/fs/cgroup/cpu.max")) {
    std::istringstream words(*line);
    double quota = 0;
    double period = 0;
    if (words >> quota >> period && period > 0) return quota / period;
    return std::nullopt;
  }
  const auto quota = first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto period = first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  const double granted = std::atof(quota->c_str());
  const double every = std::atof(period->c_str());
  if (granted <= 0 || every <= 0) return std::nullopt;
  return granted / every;
}

// Lists one thread of each core before the second threads, so that the first n CPUs are the best ones for n threads.
std::vector<int> cores_first(const std::vector<int>& cpus, int* cores) {
  std::map<std::string, int> threads_seen;
  std::vector<std::pair<int, int>> order;
  for (const int cpu : cpus) {
    const std::string base = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    const auto core = first_line(base + "core_id");
    const auto package = first_line(base + "physical_package_id");
    // core_id repeats from die to die on some machines; the sibling list never does.
    const auto siblings = first_line(base + "thread_siblings_list");
    const std::string key =
        siblings ? *siblings : fmt::format("{}:{}", package.value_or("?"), core.value_or(std::to_string(cpu)));
    order.emplace_back(threads_seen[key]++, cpu);
  }
  *cores = static_cast<int>(threads_seen.size());
  std::sort(order.begin(), order.end());
  std::vector<int> sorted;
  for (const auto& [rank, cpu] : order) sorted.push_back(cpu);
  return sorted;
}

// Level `level` (data or unified) as the available CPUs see it.
CacheLevel cache_level(const std::vector<int>& cpus, int level) {
  CacheLevel found;
  std::set<std::string> instances;
  for (const int cpu : cpus) {
    for (int index = 0; index < 8; ++index) {
      const std::string base = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
      if (first_line(base + "level").value_or("") != std::to_string(level)) continue;
      if (first_line(base + "type").value_or("") == "Instruction") continue;
      found.bytes = std::max(found.bytes, parse_size(first_line(base + "size").value_or("")));
      const std::string shared = first_line(base + "shared_cpu_list").value_or(std::to_string(cpu));
      if (!instances.insert(shared).second) continue;
      const std::vector<int> members = parse_cpu_list(shared);
      const auto here = std::count_if(members.begin(), members.end(), [&](int member) {
        return std::find(cpus.begin(), cpus.end(), member) != cpus.end();
      });
      found.sharers = std::max(found.sharers, static_cast<int>(here));
    }
  }
  found.instances = static_cast<int>(instances.size());
  return found;
}

// Falls back to the C library's value, then to a common size, where sysfs has none (some containers and Arm VMs).
std::size_t size_or(std::size_t bytes, int sysconf_name, std::size_t common) {
  if (bytes > 0) return bytes;
  const long known = sysconf(sysconf_name);
  return known > 0 ? static_cast<std::size_t>(known) : common;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& list) {
  std::vector<int> cpus;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0;
    int last = 0;
    const int fields = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (fields < 1) continue;
    if (fields == 1) last = first;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

void describe_threads(Machine& machine) {
  machine.threads.online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  int cores = 0;
  machine.threads.cpus = cores_first(affinity_cpus(), &cores);
  if (const auto quota = cgroup_cpu_quota(); quota && *quota < static_cast<double>(machine.threads.cpus.size())) {
    machine.notes.push_back(
        fmt::format("the cgroup grants {:.2f} CPUs' time of {} CPUs", *quota, machine.threads.cpus.size()));
    machine.threads.cpus.resize(static_cast<std::size_t>(std::max(1.0, std::floor(*quota))));
  }
  machine.threads.available = static_cast<int>(machine.threads.cpus.size());
  machine.threads.cores = std::min(cores, machine.threads.available);
}

void describe_caches(Machine& machine) {
  CacheLevel l1d = cache_level(machine.threads.cpus, 1);
  CacheLevel l2 = cache_level(machine.threads.cpus, 2);
  CacheLevel l3 = cache_level(machine.threads.cpus, 3);
  if (l1d.bytes == 0 || l2.bytes == 0)
    machine.notes.push_back("sysfs reports no L1 or L2 cache: sizes are the C library's, or 32 KiB and 512 KiB");
  l1d.bytes = size_or(l1d.bytes, _SC_LEVEL1_DCACHE_SIZE, std::size_t{32} << 10);
  l2.bytes = size_or(l2.bytes, _SC_LEVEL2_CACHE_SIZE, std::size_t{512} << 10);
  l3.bytes = size_or(l3.bytes, _SC_LEVEL3_CACHE_SIZE, 0);
  l2.instances = std::max(1, l2.instances);
  l3.instances = l3.bytes == 0 ? 0 : std::max(1, l3.instances);
  machine.caches = {.l1d = l1d, .l2 = l2, .l3 = l3};
}

}  // namespace gable::perf
