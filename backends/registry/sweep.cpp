// See sweep.h.
#include "backends/registry/sweep.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/common/cache.h"

namespace gable {
namespace {

void read_lines(const std::vector<std::uint64_t>& words) {
  constexpr std::size_t kLine = 64 / sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words.size(); i += kLine) sum += words[i];
  asm volatile("" : : "r"(sum) : "memory");  // keeps the compiler from removing the loop
}

}  // namespace

void sweep_private_caches(int threads) {
  constexpr std::size_t kTimesL2 = 2;
  // Read only: all cores may hold the same lines, and none of them is written back during the next run.
  static const std::vector<std::uint64_t> words(kTimesL2 * static_cast<std::size_t>(cpu::l2_bytes()) / 8, 1);
  if (threads <= 1) return read_lines(words);  // a parallel region allocates, and ends the process where it can't
#pragma omp parallel num_threads(threads)
  read_lines(words);
}

}  // namespace gable
