// This machine as a process sees it: CPU, caches, SIMD features, clock, system, date. Read from CPUID, sysfs and procfs
// without any library. A hypervisor may report wrong sizes; `notes` says which values to doubt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gable::perf {

struct Machine {
  std::string cpu_model;      ///< e.g. "Intel(R) Xeon(R) Platinum 8480C"
  std::string vendor;         ///< "GenuineIntel", "AuthenticAMD", ... from CPUID; on ARM the implementer's number
  std::string architecture;   ///< "x86_64", "aarch64"
  int family = 0, model = 0;  ///< from CPUID, extended values included; 0 elsewhere
  int threads_online = 0;     ///< hardware threads of the whole machine
  int threads_available = 0;  ///< of those, the ones that affinity and cgroup quota allow this process
  int cores_available = 0;    ///< distinct physical cores behind the available threads
  std::vector<int> cpus;      ///< the CPU numbers of the available threads, one thread of each core first

  // One instance each; 0 where the level does not exist or is not reported.
  std::size_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;
  // Available hardware threads that share one instance.
  int l1d_sharers = 1, l2_sharers = 1, l3_sharers = 1;
  // Instances that the available threads reach.
  int l2_instances = 0, l3_instances = 0;

  std::vector<std::string>
      simd;             ///< usable (CPU and operating system): "sse4", "avx2", "fma", "avx512f", "amx_bf16", ...
  double clock_hz = 0;  ///< measured now, one thread: see measure_clock_hz()
  std::string clock_method;
  std::size_t memory_bytes = 0;            ///< of the machine or of the cgroup, whichever is less
  std::size_t memory_available_bytes = 0;  ///< what can be allocated now without swapping

  bool virtual_machine = false;
  std::string hypervisor;  ///< e.g. "KVMKVMKVM"; empty on bare metal
  std::string os;          ///< PRETTY_NAME of os-release
  std::string kernel;      ///< e.g. "Linux 6.1.0"
  std::string compiler;    ///< the one that built this library
  std::string date;        ///< now, ISO 8601, UTC: "2025-01-31T12:00:00Z"
  std::vector<std::string> notes;

  bool has(const std::string& feature) const;
};

/// Describes the machine; takes about 30 ms, most of it the clock.
Machine describe_machine();

/// Only the fields from CPUID (vendor, simd, virtual_machine, hypervisor); measures nothing.
Machine describe_isa_only();

/// The calling thread's core clock in cycles a second, from a chain of dependent register additions (one cycle each on
/// every CPU that gable knows; register operands, because recent cores fold additions of constants away). 0 where the
/// architecture has no such chain here. `seconds` is the length of the measurement.
double measure_clock_hz(double seconds = 0.02);

/// "0-3,8" -> {0, 1, 2, 3, 8}: the kernel's CPU list format. Malformed parts are skipped.
std::vector<int> parse_cpu_list(const std::string& list);

}  // namespace gable::perf
