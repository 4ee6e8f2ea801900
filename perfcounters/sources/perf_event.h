// Hardware counters through Linux's perf_event_open: W from retired floating-point events of this process's threads,
// Q(dram) from the memory controllers' CAS counts (of the whole machine, including neighbours). Related events form a
// group, which the kernel schedules as a whole; a group that was multiplexed or overflowed is refused.
//   Intel   FP_ARITH_INST_RETIRED (0xC7), with AVX512-FP16 also FP_ARITH_INST_RETIRED2 (0xCF): an FMA counts twice. AMX
//           and VDPBF16PS have no event: W of such work is refused, and AMX's busy cycles are an extra value
//   AMD     fp_ret_sse_avx_ops.all (0x03), which counts FLOP
//   Arm     FP_SCALE_OPS_SPEC (0x80C0, per 128 bits of vector length) and FP_FIXED_OPS_SPEC (0x80C1), both speculative
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

/// One event of a core: the raw perf configuration and the FLOP per count.
struct FlopEvent {
  std::string name;
  std::uint64_t config = 0;
  double flop_per_count = 0;  ///< 0: an extra value, not part of W
  std::string type{};         ///< "f64", "f32", "f16"; empty: it counts several
};

/// Groups of events that together count all FLOP of this CPU. Each group fits the counters of one run, so the work runs
/// once per group. Empty for a CPU whose events gable does not know. `sve_bits`: Arm's vector length.
std::vector<std::vector<FlopEvent>> flop_groups(const Machine& machine, int sve_bits = 128);

/// The same with an event for each type of operand, for work whose types are not known: more runs, of four events each.
/// AMD's and Arm's events do not tell types.
std::vector<std::vector<FlopEvent>> flop_groups_by_type(const Machine& machine, int sve_bits = 128);

/// The kernel's values of one group of counters.
struct RawGroup {
  std::uint64_t time_enabled = 0;
  std::uint64_t time_running = 0;
  std::vector<std::uint64_t> values;  ///< in the order in which the events were opened
};

/// W of one group. Refused with a reason: a group that shared its counters (time_running != time_enabled: the rest
/// would be extrapolated), one that never ran, one with a counter that overflowed, or one with a wrong number of
/// values.
Quantity flop_from_counts(std::span<const FlopEvent> events, const RawGroup& group);

/// W of several threads' groups: their sum, or the first refusal.
Quantity flop_from_counts(std::span<const FlopEvent> events, std::span<const RawGroup> groups);

/// One CAS event of one memory-controller box, as sysfs describes it.
struct MemoryEvent {
  std::string box;   ///< "uncore_imc_0"
  std::string name;  ///< "cas_count_read"
  std::uint32_t type = 0;
  std::uint64_t config = 0;
  double bytes_per_count = 64;
  std::vector<int> cpus;  ///< one CPU of each socket, on which the event is opened
};

/// "event=0x05,umask=0xcf" -> umask << 8 | event, the layout of Intel's memory controllers. Throws
/// std::invalid_argument for a term that it does not know.
std::uint64_t parse_event_config(const std::string& text);

/// The CAS events under `devices` (normally /sys/bus/event_source/devices): Intel's uncore_imc_* with the names,
/// configurations and scales given there, AMD's amd_umc_* (event 0x0a, reads 1 and writes 2, 64 bytes a count).
std::vector<MemoryEvent> memory_events(const std::string& devices);

/// Q(dram): the sum over all boxes. `groups[i]` holds the one value of `events[i]` on each of its CPUs.
Quantity bytes_from_counts(std::span<const MemoryEvent> events, std::span<const std::vector<RawGroup>> groups);

/// Why perf_event_open failed, and the cure. `has_cpu_pmu`: /sys/bus/event_source/devices lists a CPU PMU.
SourceStatus explain_failure(int error, int paranoid, bool virtual_machine, bool has_cpu_pmu);

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

/// What the source knows of the machine.
struct PerfHost {
  Machine machine;      ///< vendor, family, model, simd and virtual_machine of it
  std::string devices;  ///< normally /sys/bus/event_source/devices
  int paranoid = 2;     ///< perf_event_paranoid
  int sve_bits = 128;
};

PerfHost perf_host();
std::shared_ptr<PerfSystem> linux_perf_system();

/// Counts around a callable. Threads that exist when measure() is called are counted, so the work runs once before it
/// is counted, in order that its pool of threads exists.
class PerfEventSource final : public CounterSource {
 public:
  explicit PerfEventSource(PerfHost host = perf_host(), std::shared_ptr<PerfSystem> system = linux_perf_system());
  /// With other groups than flop_groups().
  PerfEventSource(PerfHost host, std::shared_ptr<PerfSystem> system, std::vector<std::vector<FlopEvent>> groups);

  std::string name() const override { return "perf_event"; }
  Provenance provenance() const override { return Provenance::counter; }
  SourceStatus status() const override;
  PassPlan prepare(const CountOptions& options) override;
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override;

 private:
  struct Counts;
  Counts count_once(const Workload& workload, const CountOptions& options) const;

  PerfHost host_;
  std::shared_ptr<PerfSystem> system_;
  std::vector<std::vector<FlopEvent>> flop_groups_;
};

}  // namespace gable::perf
