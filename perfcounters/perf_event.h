// Hardware counters through Linux's perf_event_open: W from retired floating-point events of this process's threads,
// Q(dram) from the memory controllers' CAS counts (whole socket). The arithmetic from raw counts to FLOP and bytes is
// apart from the system calls, so that it can be tested without a PMU.
// W: Intel FP_ARITH_INST_RETIRED (0xC7), AMD fp_ret_sse_avx_ops (0x03). Both count a fused multiply-add as two.
// Neither sees matrix units (AMX, VDPBF16PS) nor, on Intel, f16 arithmetic: W of such kernels stays analytic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perfcounters/source.h"

namespace gable::perf {

/// One floating-point event: the raw perf configuration and the FLOP that one count stands for.
struct FlopEvent {
  std::string name;
  std::uint64_t config = 0;
  double flop_per_count = 0;
};

/// The events that together count all f32 and f64 FLOP, few enough for one group; empty for an unknown vendor
/// (`vendor` as CPUID says it).
std::vector<FlopEvent> flop_events(const std::string& vendor);

/// What the kernel hands back of one group of counters.
struct RawGroup {
  std::uint64_t time_enabled = 0;
  std::uint64_t time_running = 0;
  std::vector<std::uint64_t> values;  ///< in the order in which the events were opened
};

/// W of one group. Refused with a reason: a group that shared its counters (time_running != time_enabled: the rest
/// would be extrapolated), one that never ran, or one with a wrong number of values.
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

/// Why perf_event_open failed and what helps. `has_cpu_pmu`: /sys/bus/event_source/devices lists a CPU PMU.
SourceStatus explain_failure(int error, int paranoid, bool virtual_machine, bool has_cpu_pmu);

/// Tries to open the events and says what came of it.
SourceStatus perf_event_status();

/// Counts around a callable. Threads that exist when measure() is called are counted, so run the work once before, in
/// order that its pool of threads exists. Counters are opened at each call.
class PerfEventSource final : public CounterSource {
 public:
  std::string name() const override { return "perf_event"; }
  Provenance provenance() const override { return Provenance::counter; }
  SourceStatus status() const override { return perf_event_status(); }
  Reading measure(const Workload& workload, const CountOptions& options) override;
  std::vector<KnownWork> known_work() const override { return {}; }
};

}  // namespace gable::perf
