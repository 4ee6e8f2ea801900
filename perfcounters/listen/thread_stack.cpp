// See thread_stack.h. A begin and an end together take about 130 ns; the clock is half of it.
#include "perfcounters/listen/thread_stack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if GABLE_HAS_CALLGRIND_HEADER
#include <stdio.h>
#include <valgrind/callgrind.h>
#endif

namespace gable::listen {
namespace {

constexpr std::uint32_t kLevels = 64;
constexpr std::uint32_t kCached = 64;
constexpr auto kRelaxed = std::memory_order_relaxed;

/// A region that this thread is in.
struct Frame {
  Kind kind;
  RegionNumber region;
  RegionNumber marked_before;  ///< the region to which callgrind's costs belong when this one has ended
  std::uint64_t start, cpu_start;
  std::uint64_t overlaps;
  double flop, bytes;
  bool counted;     ///< false: it has no slot (then `region` is its parent), or was open when the process was forked
  bool overlapped;  ///< another thread was in a region when it began
  bool marked;      ///< it has its own part of callgrind's profile
  bool unmarked;    ///< it and what is inside have no such part, so that calls / marked calls scales whole calls
  bool cpu_timed;
};

/// The region of a name in a parent. Names are compared, since a buffer may hold another name the next time.
struct CachedRegion {
  const char* name;
  RegionNumber parent, region;
  Origin origin;
};

struct Thread {
  std::uint32_t process;  ///< RegionTable::process() of the last use
  std::uint32_t levels;
  std::uint32_t skipped;  ///< regions inside the innermost level
  std::uint64_t random;
  Frame stack[kLevels];
  CachedRegion cached[kCached];
  std::uint64_t seen[kMaxRegions / 64];  ///< regions that this thread ran
  EventValue* at_begin;                  ///< of each level, if events are counted
};

/// A range with an id, until its end.
struct OpenRange {
  std::atomic<std::uint64_t> id;  ///< 0: free
  RegionNumber region;
  std::uint64_t start;
};
constexpr std::uint32_t kOpenRanges = 1024;
OpenRange open_ranges[kOpenRanges];
std::atomic<std::uint64_t> range_ids{0};

std::atomic<std::int32_t> threads_inside{0};  ///< regions
std::atomic<std::uint64_t> overlaps{0};       ///< times that a thread came into a region beside another
std::atomic<RegionNumber> marked_region{0};   ///< to which callgrind's costs belong now

__attribute__((tls_model("initial-exec"))) thread_local Thread* own_thread = nullptr;
pthread_key_t thread_end;
pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;

std::uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000000U + static_cast<std::uint64_t>(time.tv_nsec);
}

std::uint64_t cpu_now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000000U + static_cast<std::uint64_t>(time.tv_nsec);
}

void end_thread(void* pointer) {
  auto* thread = static_cast<Thread*>(pointer);
  if (thread->levels > 0 && table.ready() && thread->process == table.process()) threads_inside.fetch_sub(1);
  own_thread = nullptr;
  free(thread->at_begin);
  free(thread);
}

Thread* new_thread() {
  pthread_once(&thread_end_once, [] { pthread_key_create(&thread_end, end_thread); });
  auto* thread = static_cast<Thread*>(calloc(1, sizeof(Thread)));
  if (thread == nullptr) return nullptr;
  const std::uint32_t events = table.header().events;
  if (events > 0) thread->at_begin = static_cast<EventValue*>(calloc(kLevels * events, sizeof(EventValue)));
  thread->process = table.process();
  thread->random = (now() ^ reinterpret_cast<std::uintptr_t>(thread)) | 1;
  pthread_setspecific(thread_end, thread);
  own_thread = thread;
  return thread;
}

/// In a forked child: the regions that this thread is in are counted in its parent.
void adopt(Thread& thread) {
  thread.process = table.process();
  memset(thread.seen, 0, sizeof(thread.seen));
  for (std::uint32_t i = 0; i < thread.levels; ++i) thread.stack[i].counted = false;
  if (thread.levels == 0) return;
  threads_inside.fetch_add(1);
  table.header().inherited.fetch_add(thread.levels, kRelaxed);
}

/// Null: regions are not recorded.
Thread* this_thread() {
  if (!table.ready()) return nullptr;
  Thread* thread = own_thread;
  if (thread == nullptr) return new_thread();
  if (thread->process != table.process()) adopt(*thread);
  return thread;
}

std::uint64_t next_random(Thread& thread) {  // xorshift64
  thread.random ^= thread.random << 13;
  thread.random ^= thread.random >> 7;
  thread.random ^= thread.random << 17;
  return thread.random;
}

template <class T>
void add_to(std::atomic<T>& sum, T value) {
  T before = sum.load(kRelaxed);
  while (!sum.compare_exchange_weak(before, before + value, kRelaxed)) {
  }
}

/// What no call can do spoils the sum, so that whoever reads it says so.
void add_declared(std::atomic<double>& sum, double value) {
  if (value != 0) add_to(sum, value > 0 ? value : __builtin_nan(""));
}

void lower(std::atomic<std::uint64_t>& least, std::uint64_t value) {
  std::uint64_t before = least.load(kRelaxed);
  while (value < before && !least.compare_exchange_weak(before, value, kRelaxed)) {
  }
}

void raise(std::atomic<std::uint64_t>& most, std::uint64_t value) {
  std::uint64_t before = most.load(kRelaxed);
  while (value > before && !most.compare_exchange_weak(before, value, kRelaxed)) {
  }
}

/// One more call. Its place in the sample is random once the sample is full, with the probability that keeps the sample
/// even over all calls (Vitter's algorithm R).
void add_call(Slot& slot, Thread& thread, std::uint64_t nanoseconds) {
  const std::uint64_t before = slot.calls.fetch_add(1, kRelaxed);
  slot.nanoseconds.fetch_add(nanoseconds, kRelaxed);
  lower(slot.fastest, nanoseconds);
  raise(slot.slowest, nanoseconds);
  std::uint64_t place = before;
  if (place >= kSamples)
    place = static_cast<std::uint64_t>(static_cast<unsigned __int128>(next_random(thread)) * (before + 1) >> 64);
  if (place < kSamples) slot.samples[place].store(static_cast<float>(nanoseconds), kRelaxed);
}

/// The first time that this thread runs the region, it is one more of its threads.
void note_thread(Slot& slot, Thread& thread, RegionNumber region) {
  std::uint64_t& word = thread.seen[(region - 1) / 64];
  const std::uint64_t bit = std::uint64_t{1} << ((region - 1) % 64);
  if ((word & bit) != 0) return;
  word |= bit;
  slot.threads.fetch_add(1, kRelaxed);
}

RegionNumber find(Thread& thread, RegionNumber parent, const char* name, Origin origin) {
  if (name == nullptr) name = "";
  const auto key = reinterpret_cast<std::uintptr_t>(name) / 4 + parent * 37;
  CachedRegion& cached = thread.cached[key % kCached];
  if (cached.region != 0 && cached.name == name && cached.parent == parent && cached.origin == origin &&
      strcmp(table.slot(cached.region).name, name) == 0)
    return cached.region;
  const RegionNumber region = table.find(parent, name, origin);
  if (region != 0) cached = {name, parent, region, origin};
  return region;
}

// ---- Marks in callgrind's profile

#if GABLE_HAS_CALLGRIND_HEADER
/// What was executed until now belongs to the region that was current until now.
void mark(RegionNumber until_now) {
  char text[kMaxPathBytes + 8];
  snprintf(text, sizeof(text), "gable:%s", table.path(until_now));
  CALLGRIND_DUMP_STATS_AT(text);
}
#else
void mark(RegionNumber) {}
#endif

/// A range with an id may end in another thread, so it has no part of the profile.
void begin_mark(Frame& frame, std::uint64_t calls_before) {
  if (table.mode() != Mode::simulated || frame.unmarked || (frame.kind & kRangeBit) != 0) return;
  frame.unmarked = calls_before >= kMarkedCalls;
  if (frame.unmarked) return;
  frame.marked = true;
  frame.marked_before = marked_region.exchange(frame.region);
  mark(frame.marked_before);
}

void end_mark(const Frame& frame) {
  if (!frame.marked) return;
  mark(marked_region.exchange(frame.marked_before));
  table.slot(frame.region).marked.fetch_add(1, kRelaxed);
}

// ---- The stack

/// Ranges with an id that other threads have ended leave the stack when they are on its top.
void drop_ended_ranges(Thread& thread) {
  while (thread.levels > 0) {
    const Kind kind = thread.stack[thread.levels - 1].kind;
    if ((kind & kRangeBit) == 0) return;
    const std::uint64_t id = kind & ~kRangeBit;
    if (open_ranges[id % kOpenRanges].id.load(std::memory_order_acquire) == id) return;
    if (--thread.levels == 0) threads_inside.fetch_sub(1);
  }
}

void remove_level(Thread& thread, std::uint32_t level) {
  for (std::uint32_t i = level; i + 1 < thread.levels; ++i) {
    thread.stack[i] = thread.stack[i + 1];
    const std::uint32_t events = table.header().events;
    if (thread.at_begin != nullptr)
      memcpy(thread.at_begin + i * events, thread.at_begin + (i + 1) * events, events * sizeof(EventValue));
  }
  if (--thread.levels == 0) threads_inside.fetch_sub(1);
}

EventValue* events_at_begin(Thread& thread, std::uint32_t level) {
  return thread.at_begin == nullptr ? nullptr : thread.at_begin + level * table.header().events;
}

/// The level on which a frame can be put; -1: there are too many.
int new_level(Thread& thread) {
  drop_ended_ranges(thread);
  if (thread.levels < kLevels) return static_cast<int>(thread.levels);
  table.header().too_deep.fetch_add(1, kRelaxed);
  return -1;
}

RegionNumber innermost(const Thread& thread) { return thread.levels == 0 ? 0 : thread.stack[thread.levels - 1].region; }

/// Puts a frame on that level. The clock comes last.
void enter(Thread& thread, int level, const Beginning& what) {
  Frame& frame = thread.stack[level];
  const RegionNumber parent = innermost(thread);
  const RegionNumber region = find(thread, parent, what.name, what.origin);
  frame = {.kind = what.kind,
           .region = region != 0 ? region : parent,
           .marked_before = 0,
           .start = 0,
           .cpu_start = 0,
           .overlaps = 0,
           .flop = what.flop,
           .bytes = what.bytes,
           .counted = region != 0,
           .overlapped = false,
           .marked = false,
           .unmarked = level > 0 && thread.stack[level - 1].unmarked,
           .cpu_timed = false};
  const std::int32_t others = level == 0 ? threads_inside.fetch_add(1, kRelaxed) : threads_inside.load(kRelaxed) - 1;
  frame.overlapped = others > 0;
  if (level == 0 && others > 0) overlaps.fetch_add(1, kRelaxed);
  frame.overlaps = overlaps.load(kRelaxed);
  thread.levels = static_cast<std::uint32_t>(level) + 1;
  if (!frame.counted) return;
  Slot& slot = table.slot(region);
  const std::uint64_t calls_before = slot.begun.fetch_add(1, kRelaxed);
  note_thread(slot, thread, region);
  begin_mark(frame, calls_before);
  if (EventValue* events = events_at_begin(thread, static_cast<std::uint32_t>(level))) read_events(events);
  frame.cpu_timed = calls_before < kTimedCpuCalls;
  if (frame.cpu_timed) frame.cpu_start = cpu_now();
  frame.start = now();
}

void add_events(Slot& slot, const EventValue* at_begin) {
  EventValue at_end[kMaxEvents];
  read_events(at_end);
  for (std::uint32_t i = 0; i < table.header().events; ++i) {
    slot.counts[i].fetch_add(at_end[i].count - at_begin[i].count, kRelaxed);
    slot.enabled[i].fetch_add(at_end[i].enabled - at_begin[i].enabled, kRelaxed);
    slot.running[i].fetch_add(at_end[i].running - at_begin[i].running, kRelaxed);
  }
}

void leave(Thread& thread, std::uint32_t level, std::uint64_t end) {
  const Frame& frame = thread.stack[level];
  if (frame.counted) {
    Slot& slot = table.slot(frame.region);
    if (const EventValue* events = events_at_begin(thread, level)) add_events(slot, events);
    if (frame.cpu_timed) {
      slot.cpu_nanoseconds.fetch_add(cpu_now() - frame.cpu_start, kRelaxed);
      slot.cpu_of_nanoseconds.fetch_add(end - frame.start, kRelaxed);
    }
    if (frame.overlapped || overlaps.load(kRelaxed) != frame.overlaps) slot.overlapped.store(1, kRelaxed);
    add_declared(slot.flop, frame.flop);
    add_declared(slot.bytes, frame.bytes);
    end_mark(frame);
    add_call(slot, thread, end - frame.start);
  }
  remove_level(thread, level);
}

/// Level of the innermost region of that kind; -1: none.
int level_of(const Thread& thread, Kind kind) {
  for (std::uint32_t level = thread.levels; level-- > 0;)
    if (thread.stack[level].kind == kind) return static_cast<int>(level);
  return -1;
}

}  // namespace

int begin_region(const Beginning& what) {
  Thread* thread = this_thread();
  if (thread == nullptr) return 0;
  const int level = thread->skipped > 0 ? -1 : new_level(*thread);
  if (level < 0) {
    if (thread->skipped++ > 0) table.header().too_deep.fetch_add(1, kRelaxed);
    return static_cast<int>(kLevels + thread->skipped) - 1;
  }
  enter(*thread, level, what);
  return level;
}

int end_region(Kind kind) {
  Thread* thread = this_thread();
  if (thread == nullptr) return 0;
  const std::uint64_t end = now();
  if (thread->skipped > 0) return static_cast<int>(kLevels + --thread->skipped);
  drop_ended_ranges(*thread);
  const int level = level_of(*thread, kind);
  if (level < 0) {
    table.header().unbalanced.fetch_add(1, kRelaxed);
    return -1;
  }
  leave(*thread, static_cast<std::uint32_t>(level), end);
  return level;
}

std::uint64_t begin_range(const char* name) {
  Thread* thread = this_thread();
  if (thread == nullptr || thread->skipped > 0) return 0;
  const int level = new_level(*thread);
  if (level < 0) return 0;
  const std::uint64_t id = range_ids.fetch_add(1, kRelaxed) + 1;
  OpenRange& range = open_ranges[id % kOpenRanges];
  std::uint64_t free_place = 0;
  if (!range.id.compare_exchange_strong(free_place, id)) {  // the range with that place is still open
    table.header().too_deep.fetch_add(1, kRelaxed);
    return 0;
  }
  enter(*thread, level, {.name = name, .origin = Origin::nvtx, .kind = id | kRangeBit});
  const Frame& frame = thread->stack[level];
  range.region = frame.counted ? frame.region : 0;
  range.start = frame.start;
  return id;
}

void end_range(std::uint64_t id) {
  Thread* thread = this_thread();
  if (thread == nullptr || id == 0) return;
  const std::uint64_t end = now();
  OpenRange& range = open_ranges[id % kOpenRanges];
  if (range.id.load(std::memory_order_acquire) != id) {
    table.header().unbalanced.fetch_add(1, kRelaxed);
    return;
  }
  const int level = level_of(*thread, id | kRangeBit);
  if (level >= 0) {
    leave(*thread, static_cast<std::uint32_t>(level), end);
  } else if (range.region != 0) {  // begun by another thread: a time, and no counts of its own
    Slot& slot = table.slot(range.region);
    slot.overlapped.store(1, kRelaxed);
    note_thread(slot, *thread, range.region);
    add_call(slot, *thread, end - range.start);
  }
  range.id.store(0, std::memory_order_release);
}

const char* current_path() {
  Thread* thread = this_thread();
  if (thread == nullptr) return "";
  drop_ended_ranges(*thread);
  return table.path(innermost(*thread));
}

}  // namespace gable::listen
