// The C allocation functions, replaced for the whole process by ones that count and pass on to glibc. C++'s operator
// new ends up in them as well.
#include "tests/tools/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GABLE_COUNTS_ALLOCATIONS 1
#else
#define GABLE_COUNTS_ALLOCATIONS 0
#endif

namespace {

std::atomic<long> count{0};
std::atomic<long> live{0};
thread_local long left = -1;  // allocations of this thread until one fails; below 0: none fails
thread_local bool failed = false;
thread_local bool all_after = false;

/// Counts an allocation; true if it shall fail.
[[maybe_unused]] bool fails() {  // sanitizers have an allocator of their own
  ++count;
  if (!(failed && all_after) && (left < 0 || left-- > 0)) return false;
  failed = true;
  errno = ENOMEM;
  return true;
}

[[maybe_unused]] void* now_live(void* memory) {
  if (memory != nullptr) ++live;
  return memory;
}

}  // namespace

#if GABLE_COUNTS_ALLOCATIONS

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t items, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  if (fails()) return nullptr;
  return now_live(__libc_malloc(bytes));
}

__attribute__((visibility("default"))) void* calloc(std::size_t items, std::size_t bytes) {
  if (fails()) return nullptr;
  return now_live(__libc_calloc(items, bytes));
}

__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t bytes) {
  if (fails()) return nullptr;
  void* moved = __libc_realloc(memory, bytes);
  if (memory == nullptr) return now_live(moved);
  if (moved == nullptr && bytes == 0) --live;  // that frees
  return moved;
}

__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t bytes) {
  if (fails()) return nullptr;
  return now_live(__libc_memalign(alignment, bytes));
}

__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (fails()) return nullptr;
  return now_live(__libc_memalign(alignment, bytes));
}

__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  if (fails()) return ENOMEM;
  *memory = now_live(__libc_memalign(alignment, bytes));
  return *memory == nullptr ? ENOMEM : 0;
}

__attribute__((visibility("default"))) void free(void* memory) {
  if (memory != nullptr) --live;
  __libc_free(memory);
}

}  // extern "C"

#endif

namespace gable::conformance {

bool can_count_allocations() { return GABLE_COUNTS_ALLOCATIONS != 0; }
long allocations() { return count.load(); }
long live_allocations() { return live.load(); }

void fail_allocation(long nth, Failing failing) {
  all_after = failing == Failing::from_there_on;
  failed = false;
  left = nth;
}
bool allocation_failed() {
  left = -1;
  all_after = false;
  return failed;
}

}  // namespace gable::conformance
