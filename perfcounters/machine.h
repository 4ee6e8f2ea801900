// This machine as a process sees it: CPU, caches, SIMD features, clock, system, date. Read from CPUID, sysfs and procfs
// without any library. A hypervisor may report wrong sizes; `notes` says which values to doubt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gable::perf {

struct Cpu {
  std::string name;           ///< e.g. "Intel(R) Xeon(R) Platinum 8480C"
  std::string vendor;         ///< "GenuineIntel", "AuthenticAMD", ... from CPUID; on ARM the implementer's number
  std::string architecture;   ///< "x86_64", "aarch64"
  int family = 0, model = 0;  ///< from CPUID, extended values included; 0 elsewhere
  /// Usable (CPU and operating system): "sse4", "avx2", "fma", "avx512f", "amx_bf16", ...
  std::vector<std::string> simd;
  double clock_hz = 0;  ///< measured now, one thread: see measure_clock_hz()
  std::string clock_method;

  bool has(const std::string& feature) const;  ///< is among `simd`
};

/// Hardware threads.
struct Threads {
  int online = 0;         ///< of the whole machine
  int available = 0;      ///< of those, the ones that affinity and cgroup quota allow this process
  int cores = 0;          ///< distinct physical cores behind the available threads
  std::vector<int> cpus;  ///< the CPU numbers of the available threads, one thread of each core first
};

struct CacheLevel {
  std::size_t bytes = 0;  ///< of one instance; 0 where the level does not exist or is not reported
  int sharers = 1;        ///< available threads that share an instance
  int instances = 0;      ///< that the available threads reach
};

struct Caches {
  CacheLevel l1d, l2, l3;
};

struct MachineMemory {
  std::size_t bytes = 0;            ///< of the machine or of the cgroup, whichever is less
  std::size_t available_bytes = 0;  ///< what can be allocated now without swapping
};

/// What runs around the process.
struct System {
  bool virtual_machine = false;
  std::string hypervisor;  ///< e.g. "KVMKVMKVM"; empty on bare metal
  std::string os;          ///< PRETTY_NAME of os-release
  std::string kernel;      ///< e.g. "Linux 6.1.0"
  std::string compiler;    ///< the one that built this library
  std::string date;        ///< now, ISO 8601, UTC: "2025-01-31T12:00:00Z"
};

struct Machine {
  Cpu cpu;
  Threads threads;
  Caches caches;
  MachineMemory memory;
  System system;
  std::vector<std::string> notes;
};

/// Describes the machine; takes about 30 ms, most of it the clock.
Machine describe_machine();

/// Only what CPUID says (of `cpu` and `system`: vendor, family, model, simd, hypervisor); measures nothing.
Machine describe_isa_only();

/// The calling thread's core clock in cycles a second, from a chain of dependent register additions (one cycle each on
/// every CPU that gable knows; register operands, because recent cores fold additions of constants away). 0 where the
/// architecture has no such chain here. `seconds` is the length of the measurement.
double measure_clock_hz(double seconds = 0.02);

/// "0-3,8" -> {0, 1, 2, 3, 8}: the kernel's CPU list format. Malformed parts are skipped.
std::vector<int> parse_cpu_list(const std::string& list);

}  // namespace gable::perf
