// A thread reads words of a row, as the output has them, and writes each scale_h times: words of 16 bytes where pixels
// and addresses are multiples of that, else of 8, 4 or 2. In NCHW a word has several pixels. Where each of them is
// there twice, half a word of the input makes one of the output; else they are gathered one by one, from a line that
// neighbours read as well.
#include "cuda/ops/upsample.h"

#include "cuda/common/check.h"
#include "cuda/ops/words.cuh"

namespace gable::cuda {
namespace {

/// Extents in words of the output; a pixel is `width` of them, or (elements) a part of one.
template <typename Index>
struct RepeatedPixels {
  Index count;  // words of all input rows, each with its pixels repeated
  Index pixels, scale_h;
  IndexDivisor<Index> by_row, by_width, by_scale_w;
};

template <typename Word, typename Index>
__device__ __forceinline__ void store_rows(const RepeatedPixels<Index>& r, Word* y, Index i, const Word& word) {
  const Index row_words = r.by_row.value(), row = r.by_row.quotient(i);
  Word* to = y + row * (r.scale_h - 1) * row_words + i;
  for (Index k = 0; k < r.scale_h; ++k, to += row_words) __stcs(to, word);
}

/// Pixels of whole words.
template <typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void repeat_words_kernel(RepeatedPixels<Index> r, const Word* x, Word* y) {
  move_words<Word>(
      r.count,
      [&](Index i) {
        const Index row = r.by_row.quotient(i), in_row = i - row * r.by_row.value();
        const Index repeated = r.by_width.quotient(in_row), width = r.by_width.value();
        const Index pixel = r.by_scale_w.quotient(repeated);
        return x[(row * r.pixels + pixel) * width + (in_row - repeated * width)];
      },
      [&](Index i, const Word& word) { store_rows(r, y, i, word); });
}

/// Pixels of one element, of which a word has several.
template <typename T, typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void repeat_elements_kernel(RepeatedPixels<Index> r, const T* x, Word* y) {
  constexpr int kElements = Several<T, Word>::kCount;
  move_words<Word>(
      r.count,
      [&](Index i) {
        const Index row = r.by_row.quotient(i), column = (i - row * r.by_row.value()) * kElements;
        const Index pixel = r.by_scale_w.quotient(column);
        const T* from = x + row * r.pixels + pixel;
        Index repeated = column - pixel * r.by_scale_w.value();
        Several<T, Word> out;
#pragma unroll
        for (int j = 0; j < kElements; ++j) {
          out.elements[j] = *from;
          if (++repeated == r.by_scale_w.value()) {
            repeated = 0;
            ++from;
          }
        }
        return out.word;
      },
      [&](Index i, const Word& word) { store_rows(r, y, i, word); });
}

template <typename Word>
struct HalfOf;
template <>
struct HalfOf<uint4> {
  using Type = uint2;
};
template <>
struct HalfOf<uint2> {
  using Type = std::uint32_t;
};
template <>
struct HalfOf<std::uint32_t> {
  using Type = std::uint16_t;
};

/// Each pixel of one element twice: word i of the output's first of scale_h rows is half-word i of the input.
template <typename T, typename Word, typename Index, typename Half = typename HalfOf<Word>::Type>
__global__ __launch_bounds__(kWordThreads) void double_elements_kernel(RepeatedPixels<Index> r, const Half* x,
                                                                       Word* y) {
  move_words<Half>(
      r.count, [&](Index i) { return __ldcs(x + i); },
      [&](Index i, const Half& half) {
        Several<T, Half> in;
        Several<T, Word> out;
        in.word = half;
#pragma unroll
        for (int j = 0; j < Several<T, Half>::kCount; ++j)
          out.elements[2 * j] = out.elements[2 * j + 1] = in.elements[j];
        store_rows(r, y, i, out.word);
      });
}

template <typename Index>
RepeatedPixels<Index> pixels_of(const UpsampleProblem& r, std::int64_t row_words, std::int64_t width) {
  return {static_cast<Index>(r.rows * row_words), static_cast<Index>(r.pixels), static_cast<Index>(r.scale_h),
          IndexDivisor<Index>(row_words),         IndexDivisor<Index>(width),   IndexDivisor<Index>(r.scale_w)};
}

constexpr WordPaths kWordPaths{Path::upsample_16, Path::upsample_8, Path::upsample_4, Path::upsample_2};
constexpr WordPaths kElementPaths{Path::upsample_elements_16, Path::upsample_elements_8, Path::upsample_elements_4,
                                  Path::upsample_elements_2};
constexpr WordPaths kDoubledPaths{Path::upsample_doubled_16, Path::upsample_doubled_8, Path::upsample_doubled_4,
                                  Path::upsample_elements_2};

template <typename T>
void repeat_elements(const UpsampleProblem& r, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t row_bytes = r.pixels * r.scale_w * static_cast<std::int64_t>(sizeof(T));
  const auto launch = [&]<typename Word, typename Index>(Word, Index) {
    if constexpr (sizeof(Word) >= sizeof(T)) {
      const auto words = pixels_of<Index>(r, row_bytes / static_cast<std::int64_t>(sizeof(Word)), 1);
      repeat_elements_kernel<T, Word, Index><<<blocks_for(words.count), kWordThreads, 0, stream>>>(
          words, static_cast<const T*>(x), static_cast<Word*>(y));
    }
  };
  with_words(address(y) | static_cast<std::uint64_t>(row_bytes), r.rows * r.scale_h * row_bytes, kElementPaths, launch);
}

/// False if a word of the output has no two elements.
template <typename T>
bool double_elements(const UpsampleProblem& r, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t row_bytes = 2 * r.pixels * static_cast<std::int64_t>(sizeof(T));
  const std::uint64_t bytes = address(y) | 2 * address(x) | static_cast<std::uint64_t>(row_bytes);
  if (r.scale_w != 2 || bytes % (2 * sizeof(T)) != 0) return false;
  const auto launch = [&]<typename Word, typename Index>(Word, Index) {
    if constexpr (sizeof(Word) >= 2 * sizeof(T)) {
      const auto words = pixels_of<Index>(r, row_bytes / static_cast<std::int64_t>(sizeof(Word)), 1);
      using Half = typename HalfOf<Word>::Type;
      double_elements_kernel<T, Word, Index><<<blocks_for(words.count), kWordThreads, 0, stream>>>(
          words, static_cast<const Half*>(x), static_cast<Word*>(y));
    }
  };
  with_words(bytes, r.rows * r.scale_h * row_bytes, kDoubledPaths, launch);
  return true;
}

void repeat_words(const UpsampleProblem& r, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t pixel_bytes = r.channels * r.element_bytes;
  const std::int64_t row_bytes = r.pixels * r.scale_w * pixel_bytes;
  const auto launch = [&]<typename Word, typename Index>(Word, Index) {
    constexpr std::int64_t kBytes = sizeof(Word);
    const auto words = pixels_of<Index>(r, row_bytes / kBytes, pixel_bytes / kBytes);
    repeat_words_kernel<Word, Index><<<blocks_for(words.count), kWordThreads, 0, stream>>>(
        words, static_cast<const Word*>(x), static_cast<Word*>(y));
  };
  with_words(address(x) | address(y) | static_cast<std::uint64_t>(pixel_bytes), r.rows * r.scale_h * row_bytes,
             kWordPaths, launch);
}

}  // namespace

void upsample(const UpsampleProblem& r, const void* x, void* y, cudaStream_t stream) {
  const bool half = r.element_bytes == 2;
  if (r.channels > 1) {
    repeat_words(r, x, y, stream);
  } else if (half ? !double_elements<std::uint16_t>(r, x, y, stream)
                  : !double_elements<std::uint32_t>(r, x, y, stream)) {
    half ? repeat_elements<std::uint16_t>(r, x, y, stream) : repeat_elements<std::uint32_t>(r, x, y, stream);
  }
  check_launch("upsample");
}

}  // namespace gable::cuda
