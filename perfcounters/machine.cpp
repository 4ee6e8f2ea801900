// Reads CPUID, sysfs, procfs and cgroup files for machine.h.
#include "perfcounters/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace gable::perf {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// The value behind "key : value" or "key=value" of a text file's first such line.
std::string value_of(const std::string& path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const auto at = line.find(separator);
    if (at == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\"") - begin + 1);
  }
  return "";
}

// "48K", "1024K", "32M", "4096" -> bytes; 0 when it is no number.
std::size_t parse_size(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return 0;
  const char unit = end == text.data() + text.size() ? '\0' : *end;
  if (unit == 'K' || unit == 'k') return value << 10;
  if (unit == 'M' || unit == 'm') return value << 20;
  return value;
}

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

void describe_threads(Machine& machine) {
  machine.threads_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  int cores = 0;
  machine.cpus = cores_first(affinity_cpus(), &cores);
  if (const auto quota = cgroup_cpu_quota(); quota && *quota < static_cast<double>(machine.cpus.size())) {
    machine.notes.push_back(fmt::format("the cgroup grants {:.2f} CPUs' time of {} CPUs", *quota, machine.cpus.size()));
    machine.cpus.resize(static_cast<std::size_t>(std::max(1.0, std::floor(*quota))));
  }
  machine.threads_available = static_cast<int>(machine.cpus.size());
  machine.cores_available = std::min(cores, machine.threads_available);
}

struct CacheLevel {
  std::size_t bytes = 0;
  int sharers = 1;
  int instances = 0;
};

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

void describe_caches(Machine& machine) {
  const CacheLevel l1 = cache_level(machine.cpus, 1);
  const CacheLevel l2 = cache_level(machine.cpus, 2);
  const CacheLevel l3 = cache_level(machine.cpus, 3);
  if (l1.bytes == 0 || l2.bytes == 0)
    machine.notes.push_back("sysfs reports no L1 or L2 cache: sizes are the C library's, or 32 KiB and 512 KiB");
  machine.l1d_bytes = size_or(l1.bytes, _SC_LEVEL1_DCACHE_SIZE, std::size_t{32} << 10);
  machine.l2_bytes = size_or(l2.bytes, _SC_LEVEL2_CACHE_SIZE, std::size_t{512} << 10);
  machine.l3_bytes = size_or(l3.bytes, _SC_LEVEL3_CACHE_SIZE, 0);
  machine.l1d_sharers = l1.sharers;
  machine.l2_sharers = l2.sharers;
  machine.l3_sharers = l3.sharers;
  machine.l2_instances = std::max(1, l2.instances);
  machine.l3_instances = machine.l3_bytes == 0 ? 0 : std::max(1, l3.instances);
}

#if defined(__x86_64__)

struct CpuId {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuId cpuid(unsigned leaf, unsigned subleaf = 0) {
  CpuId id;
  if (static_cast<unsigned>(__get_cpuid_max(leaf & 0x80000000U, nullptr)) >= leaf)
    __cpuid_count(leaf, subleaf, id.eax, id.ebx, id.ecx, id.edx);
  return id;
}

std::string text_of(std::initializer_list<unsigned> words) {
  std::string text;
  for (const unsigned word : words) {
    std::array<char, 4> bytes{};
    std::memcpy(bytes.data(), &word, bytes.size());
    text.append(bytes.data(), bytes.size());
  }
  return text.substr(0, text.find('\0'));
}

// Register states that the operating system saves. Instructions whose state is not saved fault.
unsigned long long saved_states() {
  if ((cpuid(1).ecx >> 27 & 1U) == 0) return 0;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<unsigned long long>(high) << 32 | low;
}

void describe_isa(Machine& machine) {
  const CpuId one = cpuid(1);
  const CpuId seven = cpuid(7);
  const CpuId seven_one = seven.eax >= 1 ? cpuid(7, 1) : CpuId{};
  const unsigned long long saved = saved_states();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = (saved & 0xe6) == 0xe6;
  const bool tiles = (saved & 0x60000) == 0x60000;
  const auto bit = [](unsigned word, int position) { return (word >> position & 1U) != 0; };
  const std::pair<const char*, bool> features[] = {
      {"sse2", true},
      {"ssse3", bit(one.ecx, 9)},
      {"sse4", bit(one.ecx, 19) && bit(one.ecx, 20)},
      {"avx", ymm && bit(one.ecx, 28)},
      {"f16c", ymm && bit(one.ecx, 29)},
      {"fma", ymm && bit(one.ecx, 12)},
      {"avx2", ymm && bit(seven.ebx, 5)},
      {"avx_vnni", ymm && bit(seven_one.eax, 4)},
      {"avx512f", zmm && bit(seven.ebx, 16)},
      {"avx512dq", zmm && bit(seven.ebx, 17)},
      {"avx512bw", zmm && bit(seven.ebx, 30)},
      {"avx512vl", zmm && bit(seven.ebx, 31)},
      {"avx512_vnni", zmm && bit(seven.ecx, 11)},
      {"avx512_bf16", zmm && bit(seven_one.eax, 5)},
      {"avx512_fp16", zmm && bit(seven.edx, 23)},
      {"amx_tile", tiles && bit(seven.edx, 24)},
      {"amx_int8", tiles && bit(seven.edx, 25)},
      {"amx_bf16", tiles && bit(seven.edx, 22)},
      {"amx_fp16", tiles && bit(seven_one.eax, 21)},
  };
  for (const auto& [name, present] : features)
    if (present) machine.simd.emplace_back(name);

  const CpuId zero = cpuid(0);
  machine.vendor = text_of({zero.ebx, zero.edx, zero.ecx});
  machine.family = static_cast<int>((one.eax >> 8 & 0xf) + (one.eax >> 20 & 0xff));
  machine.model = static_cast<int>((one.eax >> 4 & 0xf) | (one.eax >> 12 & 0xf0));
  machine.virtual_machine = bit(one.ecx, 31);
  if (machine.virtual_machine) {
    CpuId host;
    __cpuid(0x40000000U, host.eax, host.ebx, host.ecx, host.edx);
    machine.hypervisor = text_of({host.ebx, host.ecx, host.edx});
  }
}

#elif defined(__aarch64__)

void describe_isa(Machine& machine) {
  const unsigned long caps = getauxval(AT_HWCAP);
  const unsigned long caps2 = getauxval(AT_HWCAP2);
  const std::pair<const char*, bool> features[] = {
      {"neon", (caps & HWCAP_ASIMD) != 0},        {"fma", (caps & HWCAP_ASIMD) != 0},
      {"neon_fp16", (caps & HWCAP_ASIMDHP) != 0}, {"sve", (caps & HWCAP_SVE) != 0},
      {"neon_bf16", (caps2 & HWCAP2_BF16) != 0},
  };
  for (const auto& [name, present] : features)
    if (present) machine.simd.emplace_back(name);
  machine.vendor = value_of("/proc/cpuinfo", "CPU implementer", ':');
  const std::string product = first_line("/sys/class/dmi/id/product_name").value_or("");
  machine.virtual_machine = product.find("KVM") != std::string::npos || product.find("Virtual") != std::string::npos;
  if (machine.virtual_machine) machine.hypervisor = product;
}

#else

void describe_isa(Machine&) {}

#endif

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

// `count` dependent additions, each one cycle.
void addition_chain(long count) {
  long value = count;
  for (long i = 0; i < count; i += 16) {
#if defined(__x86_64__)
    asm volatile(".rept 16\n\tadd %1, %0\n\t.endr" : "+r"(value) : "r"(i) : "cc");
#elif defined(__aarch64__)
    asm volatile(".rept 16\n\tadd %0, %0, %1\n\t.endr" : "+r"(value) : "r"(i));
#endif
  }
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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

double measure_clock_hz(double seconds) {
#if defined(__x86_64__) || defined(__aarch64__)
  constexpr long kAdditions = 1 << 18;  // about 0.1 ms: short enough that some samples are not interrupted
  std::vector<double> rates;
  const double end = seconds_now() + seconds;
  do {
    const double start = seconds_now();
    addition_chain(kAdditions);
    rates.push_back(static_cast<double>(kAdditions) / (seconds_now() - start));
  } while (seconds_now() < end);
  // Interruptions only slow samples down, and the first samples wake the core: take the upper quartile.
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() * 3 / 4];
#else
  (void)seconds;
  return 0;
#endif
}

Machine describe_isa_only() {
  Machine machine;
  describe_isa(machine);
  return machine;
}

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
