// What kernels share that copy words: the widest word that a problem allows, the index that counts them, and the copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/common/coverage.h"

namespace gable::cuda {

constexpr int kWordThreads = 256;
constexpr int kWordBatch = 2;  // words of a thread that are loaded before the first is stored

/// Division of an index by a number that is fixed when the kernel starts. Of 32 bits: a product and a shift, right for
/// indices below 2^31 (Granlund and Montgomery, 1994), where the hardware's own takes some twenty instructions.
template <typename Index>
class IndexDivisor {
 public:
  explicit IndexDivisor(std::int64_t divisor) : value_(static_cast<Index>(divisor)) {
    if constexpr (sizeof(Index) == 4) {
      while (std::uint64_t{1} << shift_ < value_) ++shift_;
      multiplier_ =
          static_cast<unsigned>(((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - value_)) / value_ + 1);
      if (value_ == 1) multiplier_ = 0;
    }
  }

  __device__ __forceinline__ Index value() const { return value_; }
  __device__ __forceinline__ Index quotient(Index index) const {
    if constexpr (sizeof(Index) == 4) return (__umulhi(index, multiplier_) + index) >> shift_;
    return index / value_;
  }

 private:
  Index value_;
  unsigned multiplier_ = 0, shift_ = 0;
};

/// Calls load(index) and then store(index, word) for each index below `count`. A thread's words lie a block apart, and
/// its loads are all in flight before its first store.
template <typename Word, typename Index, typename Load, typename Store>
__device__ __forceinline__ void move_words(Index count, const Load& load, const Store& store) {
  constexpr Index kBlockWords = kWordThreads * kWordBatch;
  for (Index first = static_cast<Index>(blockIdx.x) * kBlockWords + threadIdx.x; first < count;
       first += static_cast<Index>(gridDim.x) * kBlockWords) {
    Word words[kWordBatch];
#pragma unroll
    for (int i = 0; i < kWordBatch; ++i)
      if (first + i * kWordThreads < count) words[i] = load(first + i * kWordThreads);
#pragma unroll
    for (int i = 0; i < kWordBatch; ++i)
      if (first + i * kWordThreads < count) store(first + i * kWordThreads, words[i]);
  }
}

/// The elements of a word.
template <typename T, typename Word>
union Several {
  static constexpr int kCount = sizeof(Word) / sizeof(T);
  Word word;
  T elements[kCount];
  __device__ Several() {}
};

inline unsigned blocks_for(std::int64_t words) {
  constexpr std::int64_t kBlockWords = kWordThreads * kWordBatch;
  return static_cast<unsigned>(std::min<std::int64_t>((words + kBlockWords - 1) / kBlockWords, 1 << 20));
}

inline std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// An op's paths, by the bytes of a word.
struct WordPaths {
  Path of_16, of_8, of_4, of_2;
};

/// Calls launch(word, index): the widest word that divides `bytes`, of which every extent and address is made, and an
/// index that counts elements of 2 bytes of the output and a step of the whole grid beyond them.
template <typename Launch>
void with_words(std::uint64_t bytes, std::int64_t output_bytes, const WordPaths& paths, const Launch& launch) {
  const auto with_index = [&](auto word, Path path) {
    if (output_bytes / 2 < std::numeric_limits<std::int32_t>::max()) {
      launch(word, std::uint32_t{});
    } else {
      launch(word, std::uint64_t{});
    }
    note_path(path);
  };
  if (bytes % 16 == 0) return with_index(uint4{}, paths.of_16);
  if (bytes % 8 == 0) return with_index(uint2{}, paths.of_8);
  if (bytes % 4 == 0) return with_index(std::uint32_t{}, paths.of_4);
  with_index(std::uint16_t{}, paths.of_2);
}

}  // namespace gable::cuda
