// A thread copies one word of output: 16 bytes where rows and addresses are multiples of that, else 8, 4 or 2.
#include "cuda/ops/concat.h"

#include "cuda/common/check.h"
#include "cuda/ops/words.cuh"

namespace gable::cuda {
namespace {

/// Extents in words.
template <typename Index>
struct ConcatWords {
  Index rows, a, b;
};

template <typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void concat_kernel(ConcatWords<Index> j, const Word* a, const Word* b,
                                                              Word* y) {
  const Index width = j.a + j.b, count = j.rows * width;
  for (Index i = first_index<Index>(); i < count; i += index_step<Index>()) {
    const Index row = i / width, column = i % width;
    y[i] = column < j.a ? a[row * j.a + column] : b[row * j.b + (column - j.a)];
  }
}

}  // namespace

void concat(const ConcatProblem& p, const void* a, const void* b, void* y, cudaStream_t stream) {
  const std::uint64_t bytes = address(a) | address(b) | address(y) | static_cast<std::uint64_t>(p.a_bytes | p.b_bytes);
  with_words(bytes, p.rows * (p.a_bytes + p.b_bytes), [&]<typename Word, typename Index>(Word, Index, unsigned blocks) {
    const ConcatWords<Index> words{static_cast<Index>(p.rows), static_cast<Index>(p.a_bytes / sizeof(Word)),
                                   static_cast<Index>(p.b_bytes / sizeof(Word))};
    concat_kernel<Word, Index><<<blocks, kWordThreads, 0, stream>>>(words, static_cast<const Word*>(a),
                                                                    static_cast<const Word*>(b), static_cast<Word*>(y));
  });
  check_launch("concat");
}

}  // namespace gable::cuda
