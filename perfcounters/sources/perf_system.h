// Linux's perf_event_open and what the kernel reads of a group of counters, behind an interface that tests replace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// The kernel's values of one group of counters.
struct RawGroup {
  std::uint64_t time_enabled = 0;
  std::uint64_t time_running = 0;
  std::vector<std::uint64_t> values;  ///< in the order in which the events were opened
};

/// Why the values are no counts; empty if they are: a group that shared its counters (time_running != time_enabled: the
/// rest would be extrapolated), one that never ran, one with a counter that overflowed, or one with a wrong number of
/// values.
std::string group_refusal(const RawGroup& group, std::size_t expected_values);

/// An event to open, as perf_event_open takes it.
struct PerfEvent {
  std::uint32_t type = 0;
  std::uint64_t config = 0;
  int thread = -1;  ///< -1: every thread on `cpu`
  int cpu = -1;     ///< -1: wherever `thread` runs
  int leader = -1;  ///< descriptor of its group's first event; -1: it is the first
  /// Counts what `thread` executes from its next exec() on, with the threads and processes that it makes. Read alone.
  bool program = false;
};

/// The system calls behind an interface, so that tests can supply raw counts. A descriptor is 0 or more.
class PerfSystem {
 public:
  virtual ~PerfSystem() = default;
  /// A descriptor, or minus errno.
  virtual int open(const PerfEvent& event) = 0;
  virtual void close(int descriptor) = 0;
  virtual void start(int leader) = 0;
  virtual void stop(int leader) = 0;
  virtual RawGroup read(int leader, std::size_t members) = 0;
  virtual RawGroup read_alone(int descriptor) { return read(descriptor, 1); }  ///< an event of a program
  virtual std::vector<int> threads() const = 0;                                ///< of this process, now
};

/// What is known of the machine.
struct PerfHost {
  Machine machine;      ///< vendor, family, model, simd and virtual_machine of it
  std::string devices;  ///< normally /sys/bus/event_source/devices
  int paranoid = 2;     ///< perf_event_paranoid
  int sve_bits = 128;
};

PerfHost perf_host();
std::shared_ptr<PerfSystem> linux_perf_system();

/// What perf_event gives, wherever it is available.
constexpr const char* kPerfProvides = "W of floating-point arithmetic, Q(dram) of the whole machine";

/// Why perf_event_open failed, and the cure. `has_cpu_pmu`: /sys/bus/event_source/devices lists a CPU PMU.
SourceStatus explain_failure(int error, int paranoid, bool virtual_machine, bool has_cpu_pmu);

/// Why an event of a core, or of a memory controller, could not be opened on this host.
SourceStatus explain_core_failure(const PerfHost& host, int error);
SourceStatus explain_memory_failure(const PerfHost& host, int error);

}  // namespace gable::perf
