// See arena.h.
#include "perfcounters/ceilings/arena.h"

#include <sys/mman.h>

namespace gable::perf {

Arena::Arena(std::size_t bytes) : bytes_(bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return;
  madvise(mapped, bytes, MADV_HUGEPAGE);
  data_ = static_cast<float*>(mapped);
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace gable::perf
