// Memory to measure bandwidth in: pages that the kernel has not placed yet. The thread that writes one first decides on
// which NUMA node it lies. Huge pages where the system grants them, so that misses of the TLB don't hide the memory.
#pragma once

#include <cstddef>

namespace gable::perf {

class Arena {
 public:
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  float* data() const { return data_; }  ///< on a page boundary; null where the system refused the memory
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  float* data_ = nullptr;
};

}  // namespace gable::perf
