// The memory controllers' events as sysfs describes them, and Q(dram) from their counts: of the whole machine,
// including neighbours.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perfcounters/sources/perf_system.h"
#include "perfcounters/sources/source.h"

namespace gable::perf {

constexpr const char* kNoMemoryPmu = "the kernel lists no memory-controller PMU (uncore_imc_*, amd_umc_*)";

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

}  // namespace gable::perf
