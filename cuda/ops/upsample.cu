// A thread writes one word of output: 16 bytes where pixels and addresses are multiples of that, else 8, 4 or 2. In
// NCHW a word of repeated pixels is gathered element by element, from a line that its neighbours read as well.
#include "cuda/ops/upsample.h"

#include "cuda/common/check.h"
#include "cuda/ops/words.cuh"

namespace gable::cuda {
namespace {

/// Extents of the input, in words; a pixel is `width` of them.
template <typename Index>
struct RepeatedPixels {
  Index rows, pixels, width, scale_h, scale_w;
};

/// Pixels of whole words.
template <typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void repeat_words_kernel(RepeatedPixels<Index> r, const Word* x, Word* y) {
  const Index row_words = r.pixels * r.scale_w * r.width, count = r.rows * r.scale_h * row_words;
  for (Index i = first_index<Index>(); i < count; i += index_step<Index>()) {
    const Index row = i / row_words / r.scale_h, in_row = i % row_words;
    const Index pixel = in_row / r.width / r.scale_w;
    y[i] = x[(row * r.pixels + pixel) * r.width + in_row % r.width];
  }
}

/// Pixels of one element, of which a word has several.
template <typename T, typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void repeat_elements_kernel(RepeatedPixels<Index> r, const T* x, Word* y) {
  constexpr int kElements = sizeof(Word) / sizeof(T);
  union Gathered {
    Word word;
    T elements[kElements];
    __device__ Gathered() {}
  };
  const Index row_words = r.pixels * r.scale_w / kElements, count = r.rows * r.scale_h * row_words;
  for (Index i = first_index<Index>(); i < count; i += index_step<Index>()) {
    const Index row = i / row_words / r.scale_h, column = i % row_words * kElements;
    const T* from = x + row * r.pixels + column / r.scale_w;
    Index repeated = column % r.scale_w;
    Gathered out;
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      out.elements[j] = *from;
      if (++repeated == r.scale_w) {
        repeated = 0;
        ++from;
      }
    }
    y[i] = out.word;
  }
}

template <typename Index>
RepeatedPixels<Index> pixels_of(const UpsampleProblem& r, std::int64_t width) {
  return {static_cast<Index>(r.rows), static_cast<Index>(r.pixels), static_cast<Index>(width),
          static_cast<Index>(r.scale_h), static_cast<Index>(r.scale_w)};
}

template <typename T>
void repeat_elements(const UpsampleProblem& r, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t row_bytes = r.pixels * r.scale_w * static_cast<std::int64_t>(sizeof(T));
  with_words(address(y) | static_cast<std::uint64_t>(row_bytes), r.rows * r.scale_h * row_bytes,
             [&]<typename Word, typename Index>(Word, Index, unsigned blocks) {
               if constexpr (sizeof(Word) >= sizeof(T)) {
                 repeat_elements_kernel<T, Word, Index><<<blocks, kWordThreads, 0, stream>>>(
                     pixels_of<Index>(r, 1), static_cast<const T*>(x), static_cast<Word*>(y));
               }
             });
}

}  // namespace

void upsample(const UpsampleProblem& r, const void* x, void* y, cudaStream_t stream) {
  if (r.channels == 1) {
    if (r.element_bytes == 2) {
      repeat_elements<std::uint16_t>(r, x, y, stream);
    } else {
      repeat_elements<std::uint32_t>(r, x, y, stream);
    }
  } else {
    const std::int64_t pixel_bytes = r.channels * r.element_bytes;
    with_words(address(x) | address(y) | static_cast<std::uint64_t>(pixel_bytes),
               r.rows * r.scale_h * r.pixels * r.scale_w * pixel_bytes,
               [&]<typename Word, typename Index>(Word, Index, unsigned blocks) {
                 const auto width = pixel_bytes / static_cast<std::int64_t>(sizeof(Word));
                 repeat_words_kernel<Word, Index><<<blocks, kWordThreads, 0, stream>>>(
                     pixels_of<Index>(r, width), static_cast<const Word*>(x), static_cast<Word*>(y));
               });
  }
  check_launch("upsample");
}

}  // namespace gable::cuda
