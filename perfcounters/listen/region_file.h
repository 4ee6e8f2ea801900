// The file in which one process keeps its regions: regions.PID.N in the session folder, N counting up where several
// processes had the same number (exec). It is mapped with MAP_SHARED by libgable_listen.so and read by session.cpp
// after the process has ended, however it ended. Plain data of one machine; the sizes in the header tell the versions
// apart. Each field is written with one store, so a process that is killed leaves at most one call half counted.
#pragma once

#include <atomic>
#include <cstdint>

namespace gable::listen {

constexpr char kMagic[8] = {'g', 'b', 'l', 'r', 'e', 'g', 'n', '1'};
constexpr std::uint32_t kMaxRegions = 4096;
constexpr std::uint32_t kMaxNameBytes = 200;  ///< a longer name is cut
/// The longest path. A region whose path would be longer is counted as its parent. Callgrind's buffer for the reason of
/// a dump ("Client Request: gable:PATH") has 512 bytes and is not checked.
constexpr std::uint32_t kMaxPathBytes = 480;
constexpr std::uint32_t kSamples = 2048;
constexpr std::uint32_t kMaxEvents = 64;
constexpr std::uint32_t kMarkedCalls = 1000;  ///< calls of a region that mark a callgrind profile
constexpr std::uint32_t kTimedCpuCalls = 64;  ///< the first calls of a region, whose CPU time is taken too

enum class Origin : std::uint32_t { gable = 0, nvtx = 1 };

/// A perf event that is read at the begin and the end of regions (GABLE_SESSION_EVENTS).
struct EventInfo {
  std::uint32_t type;
  std::int32_t cpu;    ///< -1: this process's threads; else everything on that CPU
  std::int32_t error;  ///< errno of the first perf_event_open that failed; 0: it counts
  std::uint32_t unused;
  std::uint64_t config;
};

struct FileHeader {
  char magic[8];
  std::uint32_t header_bytes, slot_bytes, slots, events;
  std::int32_t pid, parent;
  std::atomic<std::uint32_t> used;        ///< slots that have a region
  std::atomic<std::uint32_t> ended_well;  ///< exit() was called, or main() returned
  std::atomic<std::uint64_t> unbalanced;  ///< ends without a begin
  std::atomic<std::uint64_t> no_slot;     ///< begins of regions for which there was no slot
  std::atomic<std::uint64_t> too_deep;    ///< begins of regions whose path is too long, or nested too deeply
  std::atomic<std::uint32_t> inherited;   ///< regions that were open when this process was forked: not counted here
  std::uint32_t unused;
  std::atomic<std::uint64_t> nanoseconds, cpu_nanoseconds;  ///< of the process; 0 until it ends well
  EventInfo event[kMaxEvents];
  char command[4096];  ///< its arguments, separated by blanks
};

/// One region: a name inside a parent. A slot is complete when `used` counts it.
struct Slot {
  std::uint32_t parent;  ///< index + 1 of the slot around it, which is always an earlier one; 0: none
  Origin origin;
  std::uint32_t cut;                 ///< the name was longer
  char name[kMaxNameBytes + 4];      ///< ends with 0; no '/', no control characters
  std::atomic<std::uint64_t> begun;  ///< calls that began
  std::atomic<std::uint64_t> calls;  ///< calls that ended; the other sums are of these
  std::atomic<std::uint64_t> nanoseconds, fastest, slowest;
  std::atomic<std::uint64_t> marked;  ///< calls with a part of the callgrind profile of their own
  std::atomic<std::uint32_t> threads, overlapped;
  std::atomic<std::uint64_t> cpu_nanoseconds, cpu_of_nanoseconds;  ///< CPU time of the process; during this wall time
  std::atomic<double> flop, bytes;                                 ///< declared
  std::atomic<std::uint64_t> enabled[kMaxEvents], running[kMaxEvents], counts[kMaxEvents];  ///< of each event
  std::atomic<float> samples[kSamples];  ///< nanoseconds of a random sample of calls
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<float>::is_always_lock_free);

}  // namespace gable::listen
