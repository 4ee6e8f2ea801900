// A thread copies words of output, kWordBatch at a time: of 16 bytes where rows and addresses are multiples of that,
// else of 8, 4 or 2.
#include "cuda/ops/concat.h"

#include "cuda/common/check.h"
#include "cuda/ops/words.cuh"

namespace gable::cuda {
namespace {

/// Extents in words.
template <typename Index>
struct ConcatWords {
  Index count, a, b;
  IndexDivisor<Index> by_width;  // a + b
};

template <typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void concat_kernel(ConcatWords<Index> j, const Word* a, const Word* b,
                                                              Word* y) {
  move_words<Word>(
      j.count,
      [&](Index i) {
        const Index row = j.by_width.quotient(i), column = i - row * j.by_width.value();
        return __ldcs(column < j.a ? a + row * j.a + column : b + row * j.b + (column - j.a));
      },
      [&](Index i, const Word& word) { __stcs(y + i, word); });
}

constexpr WordPaths kPaths{Path::concat_16, Path::concat_8, Path::concat_4, Path::concat_2};

}  // namespace

void concat(const ConcatProblem& p, const void* a, const void* b, void* y, cudaStream_t stream) {
  const std::uint64_t bytes = address(a) | address(b) | address(y) | static_cast<std::uint64_t>(p.a_bytes | p.b_bytes);
  const std::int64_t output_bytes = p.rows * (p.a_bytes + p.b_bytes);
  with_words(bytes, output_bytes, kPaths, [&]<typename Word, typename Index>(Word, Index) {
    constexpr std::int64_t kBytes = sizeof(Word);
    const ConcatWords<Index> words{static_cast<Index>(output_bytes / kBytes), static_cast<Index>(p.a_bytes / kBytes),
                                   static_cast<Index>(p.b_bytes / kBytes),
                                   IndexDivisor<Index>((p.a_bytes + p.b_bytes) / kBytes)};
    concat_kernel<Word, Index><<<blocks_for(words.count), kWordThreads, 0, stream>>>(
        words, static_cast<const Word*>(a), static_cast<const Word*>(b), static_cast<Word*>(y));
  });
  check_launch("concat");
}

}  // namespace gable::cuda
