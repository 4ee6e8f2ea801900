// A thread makes a word of 16 bytes of output: in NHWC the mean of four words of neighbouring pixels, elsewhere element
// by element of a row, whose neighbours the caches hold. Rows or pixels of no whole words are made element by element.
#include "cuda/ops/bilinear.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"
#include "cuda/ops/words.cuh"

namespace gable::cuda {
namespace {

/// The mean of two means of two.
__device__ __forceinline__ float mean_of(const Between& rows, const Between& columns, float a, float b, float c,
                                         float d) {
  const float above = fmaf(b, columns.second_share, a * columns.first_share);
  const float below = fmaf(d, columns.second_share, c * columns.first_share);
  return fmaf(below, rows.second_share, above * rows.first_share);
}

/// Rows or columns. Numbers of 32 bits go without divisions: positions are below 2^31, and the input then has at most
/// 2^16 pixels a row, so the product by the reciprocal is at most one off, which is corrected.
template <typename Index>
struct Axis {
  Index size, scale, parts;  // parts: of a pixel of the input, in which positions are counted
  float reciprocal;          // of parts

  __device__ __forceinline__ Between between(Index at, bool align_corners) const {
    if constexpr (sizeof(Index) > 4) {
      return gable::between(static_cast<std::int64_t>(at), static_cast<std::int64_t>(size),
                            static_cast<std::int64_t>(scale), align_corners);
    } else {
      const Index place = align_corners ? at * (size - 1) : 2 * at + 1 <= scale ? 0 : 2 * at + 1 - scale;
      if (place == 0 || size == 1) return {};
      Index first = static_cast<Index>(static_cast<float>(place) * reciprocal);
      Index rest = place - first * parts;
      if (first * parts > place) {
        --first;
        rest += parts;
      } else if (rest >= parts) {
        ++first;
        rest -= parts;
      }
      if (rest == 0 || first + 1 >= size) return {first, first};
      return {first, first + 1, static_cast<float>(parts - rest) * reciprocal, static_cast<float>(rest) * reciprocal};
    }
  }
};

template <typename Index>
Axis<Index> axis_of(std::int64_t size, std::int64_t scale, bool align_corners) {
  const std::int64_t parts = align_corners ? size * scale - 1 : 2 * scale;
  return {static_cast<Index>(size), static_cast<Index>(scale), static_cast<Index>(parts),
          parts > 0 ? 1.0f / static_cast<float>(parts) : 0.0f};
}

template <typename Index>
struct Images {
  Index images, channels;
  Axis<Index> down, across;
  bool align_corners;
};

template <typename Index>
Images<Index> images_of(const BilinearProblem& p) {
  return {static_cast<Index>(p.images), static_cast<Index>(p.channels),
          axis_of<Index>(p.rows, p.scale_h, p.align_corners), axis_of<Index>(p.pixels, p.scale_w, p.align_corners),
          p.align_corners};
}

/// Pixels of whole words: their channels.
template <typename T, typename Index>
__global__ __launch_bounds__(kWordThreads) void bilinear_words_kernel(Images<Index> p, const uint4* x, uint4* y) {
  using Elements = Several<T, uint4>;
  const Index width = p.channels / Elements::kCount;  // words of a pixel
  const Index columns = p.across.size * p.across.scale, rows = p.down.size * p.down.scale;
  const Index count = p.images * rows * columns * width;
  const auto mean = [&](Index i) {
    const Index pixel = i / width, channel = i % width, row = pixel / columns;
    const Between across = p.across.between(pixel % columns, p.align_corners);
    const Between down = p.down.between(row % rows, p.align_corners);
    const Index image = row / rows * p.down.size;
    const auto word_at = [&](std::int64_t r, std::int64_t c) {
      return x[((image + static_cast<Index>(r)) * p.across.size + static_cast<Index>(c)) * width + channel];
    };
    Elements a, b, c, d;
    a.word = word_at(down.first, across.first);
    b.word = word_at(down.first, across.second);
    c.word = word_at(down.second, across.first);
    d.word = word_at(down.second, across.second);
#pragma unroll
    for (int j = 0; j < Elements::kCount; ++j) {
      a.elements[j] = from_f32<T>(mean_of(down, across, to_f32(a.elements[j]), to_f32(b.elements[j]),
                                          to_f32(c.elements[j]), to_f32(d.elements[j])));
    }
    return a.word;
  };
  move_words<uint4>(count, mean, [&](Index i, uint4 word) { y[i] = word; });
}

/// A word of a row of output, which holds elements of one or several pixels.
template <typename T, typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void bilinear_elements_kernel(Images<Index> p, const T* x, Word* y) {
  using Elements = Several<T, Word>;
  const Index rows = p.down.size * p.down.scale, row_elements = p.across.size * p.channels;  // of the input
  const Index width = row_elements * p.across.scale / Elements::kCount;                      // words of output
  const Index count = p.images * rows * width;
  const auto mean = [&](Index i) {
    const Index row = i / width, first = i % width * Elements::kCount;
    const Between down = p.down.between(row % rows, p.align_corners);
    const Index image = row / rows * p.down.size;
    const T* const upper = x + (image + static_cast<Index>(down.first)) * row_elements;
    const T* const lower = x + (image + static_cast<Index>(down.second)) * row_elements;
    Index pixel = first / p.channels, channel = first % p.channels;
    Elements out;
#pragma unroll
    for (int j = 0; j < Elements::kCount; ++j) {
      const Between across = p.across.between(pixel, p.align_corners);
      const Index left = static_cast<Index>(across.first) * p.channels + channel;
      const Index right = static_cast<Index>(across.second) * p.channels + channel;
      out.elements[j] = from_f32<T>(
          mean_of(down, across, to_f32(upper[left]), to_f32(upper[right]), to_f32(lower[left]), to_f32(lower[right])));
      if (++channel == p.channels) {
        channel = 0;
        ++pixel;
      }
    }
    return out.word;
  };
  move_words<Word>(count, mean, [&](Index i, Word word) { y[i] = word; });
}

/// Positions are fractions of products of two extents.
bool fits_32_bits(const BilinearProblem& p) {
  const std::int64_t limit = std::int64_t{1} << 31;
  const std::int64_t rows = p.rows * p.scale_h, columns = p.pixels * p.scale_w;
  return p.images * rows * columns * p.channels < limit && rows * p.rows < limit && columns * p.pixels < limit;
}

template <typename T, typename Index>
void bilinear_as(const BilinearProblem& p, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t row_bytes = p.pixels * p.scale_w * p.channels * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t words = p.images * p.rows * p.scale_h * row_bytes / 16;
  const auto* from = static_cast<const T*>(x);
  const bool aligned = (address(x) | address(y)) % 16 == 0;
  if (aligned && p.channels * sizeof(T) % 16 == 0) {
    bilinear_words_kernel<T, Index><<<blocks_for(words), kWordThreads, 0, stream>>>(
        images_of<Index>(p), static_cast<const uint4*>(x), static_cast<uint4*>(y));
    return note_path(Path::bilinear_vectors);
  }
  if (aligned && row_bytes % 16 == 0) {
    bilinear_elements_kernel<T, uint4, Index>
        <<<blocks_for(words), kWordThreads, 0, stream>>>(images_of<Index>(p), from, static_cast<uint4*>(y));
  } else {
    const std::int64_t count = p.images * p.rows * p.scale_h * row_bytes / static_cast<std::int64_t>(sizeof(T));
    bilinear_elements_kernel<T, T, Index>
        <<<blocks_for(count), kWordThreads, 0, stream>>>(images_of<Index>(p), from, static_cast<T*>(y));
  }
  note_path(Path::bilinear_elements);
}

}  // namespace

void upsample_bilinear(const BilinearProblem& problem, const void* x, void* y, cudaStream_t stream) {
  with_type(problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (fits_32_bits(problem)) return bilinear_as<T, std::uint32_t>(problem, x, y, stream);
    bilinear_as<T, std::uint64_t>(problem, x, y, stream);
  });
  check_launch("upsample");
}

}  // namespace gable::cuda
