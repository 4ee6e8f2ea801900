// Preloaded into every process of a program that runs under callgrind (perfcounters/program/simulation.h).
// After fork(), the child's counts start at zero and its caches are empty. Otherwise it would inherit its parent's from
// callgrind, and these counts and dirty lines would be counted twice. At a process's end, the counts so far are dumped.
// Then as many bytes as the simulated last level holds are read, so that every line that is still dirty there is
// written back, and these counts are dumped as "gable-residue". Outside of valgrind it does nothing, unless
// GABLE_FLUSH_DENORMALS is set: the process then computes with denormal numbers as zeros, so that what they cost can be
// measured. Threads inherit it from the thread that starts them.
#include <pthread.h>
#include <sys/mman.h>
#include <valgrind/callgrind.h>

#include <cstddef>
#include <cstdlib>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace {

constexpr std::size_t kLine = 64;

// Read at the start: a program may clear its environment.
std::size_t sweep_bytes = 0;

void forget_parent() {
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_START_INSTRUMENTATION;  // empties the caches
  CALLGRIND_ZERO_STATS;
}

void flush_denormals() {
#if defined(__SSE__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
}

[[gnu::constructor]] void start() {
  if (std::getenv("GABLE_FLUSH_DENORMALS") != nullptr) flush_denormals();
  if (RUNNING_ON_VALGRIND == 0) return;
  pthread_atfork(nullptr, nullptr, forget_parent);
  const char* text = std::getenv("GABLE_SWEEP_BYTES");
  if (text != nullptr) sweep_bytes = std::strtoul(text, nullptr, 10);
}

[[gnu::destructor]] void sweep() {
  if (sweep_bytes == 0) return;
  // Pages that are never written share one page of zeros: no memory is taken. Their addresses fill every set of the
  // cache with as many lines as it has ways.
  void* memory = mmap(nullptr, sweep_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  CALLGRIND_DUMP_STATS_AT("gable-end");
  const auto* data = static_cast<const volatile char*>(memory);
  for (std::size_t i = 0; i < sweep_bytes; i += kLine) static_cast<void>(data[i]);
  CALLGRIND_DUMP_STATS_AT("gable-residue");
  munmap(memory, sweep_bytes);
}

}  // namespace
