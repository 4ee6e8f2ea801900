// What kernels share that copy words: the widest word that a problem allows, and the index that counts them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace gable::cuda {

constexpr int kWordThreads = 256;

/// Of the words that a thread copies: this one, and all that lie a multiple of index_step() behind it.
template <typename Index>
__device__ __forceinline__ Index first_index() {
  return static_cast<Index>(blockIdx.x) * kWordThreads + threadIdx.x;
}
template <typename Index>
__device__ __forceinline__ Index index_step() {
  return static_cast<Index>(gridDim.x) * kWordThreads;
}

inline unsigned blocks_for(std::int64_t words) {
  return static_cast<unsigned>(std::min<std::int64_t>((words + kWordThreads - 1) / kWordThreads, 1 << 20));
}

inline std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Calls launch(word, index, blocks): the widest word that divides `bytes`, of which every extent and address is made,
/// and an index that counts elements of 2 bytes and a step of the whole grid beyond them.
template <typename Launch>
void with_words(std::uint64_t bytes, std::int64_t output_bytes, const Launch& launch) {
  const auto with_index = [&](auto word) {
    const unsigned blocks = blocks_for(output_bytes / static_cast<std::int64_t>(sizeof(word)));
    if (output_bytes / 2 < std::numeric_limits<std::int32_t>::max()) {
      launch(word, std::uint32_t{}, blocks);
    } else {
      launch(word, std::uint64_t{}, blocks);
    }
  };
  if (bytes % 16 == 0) return with_index(uint4{});
  if (bytes % 8 == 0) return with_index(uint2{});
  if (bytes % 4 == 0) return with_index(std::uint32_t{});
  with_index(std::uint16_t{});
}

}  // namespace gable::cuda
