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

/// gable's between() in 32-bit numbers, whose products must fit.
__device__ __forceinline__ Between between_32(std::uint32_t at, std::uint32_t size, std::uint32_t scale,
                                              bool align_corners) {
  const std::uint32_t parts = align_corners ? size * scale - 1 : 2 * scale;
  const std::uint32_t place = align_corners ? at * (size - 1) : 2 * at + 1 <= scale ? 0 : 2 * at + 1 - scale;
  if (place == 0 || size == 1) return {};
  const std::uint32_t first = place / parts, rest = place % parts;
  if (rest == 0 || first + 1 >= size) return {first, first};
  const float whole = static_cast<float>(parts);
  return {first, first + 1, __fdiv_rn(static_cast<float>(parts - rest), whole),
          __fdiv_rn(static_cast<float>(rest), whole)};
}

template <typename Index>
__device__ __forceinline__ Between between_of(Index at, std::int64_t size, std::int64_t scale, bool align_corners) {
  if constexpr (sizeof(Index) == 4) {
    return between_32(at, static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(scale), align_corners);
  }
  return between(static_cast<std::int64_t>(at), size, scale, align_corners);
}

/// Pixels of whole words: their channels.
template <typename T, typename Index>
__global__ __launch_bounds__(kWordThreads) void bilinear_words_kernel(BilinearProblem p, const T* x, T* y) {
  using Elements = Several<T, uint4>;
  const Index width = static_cast<Index>(p.channels / Elements::kCount);  // words of a pixel
  const Index columns = static_cast<Index>(p.pixels * p.scale_w), rows = static_cast<Index>(p.rows * p.scale_h);
  const Index count = static_cast<Index>(p.images) * rows * columns * width;
  const auto* words = reinterpret_cast<const uint4*>(x);
  for (Index i = first_index<Index>(); i < count; i += index_step<Index>()) {
    const Index pixel = i / width, channel = i % width, row = pixel / columns;
    const Between across = between_of<Index>(pixel % columns, p.pixels, p.scale_w, p.align_corners);
    const Between down = between_of<Index>(row % rows, p.rows, p.scale_h, p.align_corners);
    const std::int64_t image = static_cast<std::int64_t>(row / rows) * p.rows;
    const auto word_at = [&](std::int64_t r, std::int64_t c) {
      return words[((image + r) * p.pixels + c) * static_cast<std::int64_t>(width) + channel];
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
    reinterpret_cast<uint4*>(y)[i] = a.word;
  }
}

/// A word of a row of output, which holds elements of one or several pixels.
template <typename T, typename Word, typename Index>
__global__ __launch_bounds__(kWordThreads) void bilinear_elements_kernel(BilinearProblem p, const T* x, Word* y) {
  using Elements = Several<T, Word>;
  const Index channels = static_cast<Index>(p.channels), rows = static_cast<Index>(p.rows * p.scale_h);
  const Index width = static_cast<Index>(p.pixels * p.scale_w * p.channels / Elements::kCount);  // words of a row
  const Index count = static_cast<Index>(p.images) * rows * width;
  for (Index i = first_index<Index>(); i < count; i += index_step<Index>()) {
    const Index row = i / width, first = i % width * Elements::kCount;
    const Between down = between_of<Index>(row % rows, p.rows, p.scale_h, p.align_corners);
    const std::int64_t image = static_cast<std::int64_t>(row / rows) * p.rows;
    const T* const upper = x + (image + down.first) * p.pixels * p.channels;
    const T* const lower = x + (image + down.second) * p.pixels * p.channels;
    Elements out;
#pragma unroll
    for (int j = 0; j < Elements::kCount; ++j) {
      const Index pixel = (first + j) / channels, channel = (first + j) % channels;
      const Between across = between_of<Index>(pixel, p.pixels, p.scale_w, p.align_corners);
      const std::int64_t left = across.first * p.channels + channel, right = across.second * p.channels + channel;
      out.elements[j] = from_f32<T>(
          mean_of(down, across, to_f32(upper[left]), to_f32(upper[right]), to_f32(lower[left]), to_f32(lower[right])));
    }
    y[i] = out.word;
  }
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
    bilinear_words_kernel<T, Index><<<blocks_for(words), kWordThreads, 0, stream>>>(p, from, static_cast<T*>(y));
    return note_path(Path::bilinear_vectors);
  }
  if (aligned && row_bytes % 16 == 0) {
    bilinear_elements_kernel<T, uint4, Index>
        <<<blocks_for(words), kWordThreads, 0, stream>>>(p, from, static_cast<uint4*>(y));
  } else {
    const std::int64_t count = p.images * p.rows * p.scale_h * row_bytes / static_cast<std::int64_t>(sizeof(T));
    bilinear_elements_kernel<T, T, Index><<<blocks_for(count), kWordThreads, 0, stream>>>(p, from, static_cast<T*>(y));
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
