// Transpose in three levels: 4×4 (4-byte) or 8×8 (2-byte) blocks in registers, by interleaving 128-bit vectors; tiles
// of 32×32 elements (4 KiB + 4 KiB, both in L1, whole cache lines on either side); stripes of tiles over threads. Inner
// step (4-byte): 64 B read, 64 B written, no FLOP; 8 interleaves for 16 elements.
#include "cpu/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/transpose.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/transpose.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu/coverage.h"
#include "cpu/parallel.h"
#include "cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
/// One 8×8 block: three rounds of interleaving 16-, 32- and 64-bit elements.
HWY_INLINE void transpose_8x8(const std::uint16_t* HWY_RESTRICT x, std::int64_t x_stride, std::uint16_t* HWY_RESTRICT y,
                              std::int64_t y_stride) {
  const hn::CappedTag<std::uint16_t, 8> d;
  const hn::Repartition<std::uint32_t, decltype(d)> d32;
  const hn::Repartition<std::uint64_t, decltype(d)> d64;
  hn::Vec<decltype(d32)> low[4], high[4];
  for (int i = 0; i < 4; ++i) {
    const auto a = hn::LoadU(d, x + 2 * i * x_stride);
    const auto b = hn::LoadU(d, x + (2 * i + 1) * x_stride);
    low[i] = hn::BitCast(d32, hn::InterleaveLower(d, a, b));
    high[i] = hn::BitCast(d32, hn::InterleaveUpper(d, a, b));
  }
  for (int half = 0; half < 2; ++half) {
    const auto* pairs = half == 0 ? low : high;
    for (int upper = 0; upper < 2; ++upper) {
      const auto a =
          upper == 0 ? hn::InterleaveLower(d32, pairs[0], pairs[1]) : hn::InterleaveUpper(d32, pairs[0], pairs[1]);
      const auto b =
          upper == 0 ? hn::InterleaveLower(d32, pairs[2], pairs[3]) : hn::InterleaveUpper(d32, pairs[2], pairs[3]);
      std::uint16_t* row = y + (4 * half + 2 * upper) * y_stride;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, hn::BitCast(d64, a), hn::BitCast(d64, b))), d, row);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, hn::BitCast(d64, a), hn::BitCast(d64, b))), d, row + y_stride);
    }
  }
}
#endif

HWY_INLINE void transpose_16bit(const std::uint16_t* HWY_RESTRICT x, std::int64_t x_stride,
                                std::uint16_t* HWY_RESTRICT y, std::int64_t y_stride, std::int64_t rows,
                                std::int64_t columns) {
  std::int64_t block_rows = 0;
  std::int64_t block_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  block_rows = rows / 8 * 8;
  block_columns = columns / 8 * 8;
  for (std::int64_t row = 0; row < block_rows; row += 8) {
    for (std::int64_t column = 0; column < block_columns; column += 8) {
      transpose_8x8(x + row * x_stride + column, x_stride, y + column * y_stride + row, y_stride);
    }
  }
#endif
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = row < block_rows ? block_columns : 0; column < columns; ++column) {
      y[column * y_stride + row] = x[row * x_stride + column];
    }
  }
}

void transpose_tile_2byte(const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride, std::int64_t rows,
                          std::int64_t columns) {
  transpose_16bit(static_cast<const std::uint16_t*>(x), x_stride, static_cast<std::uint16_t*>(y), y_stride, rows,
                  columns);
}

void transpose_tile_4byte(const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride, std::int64_t rows,
                          std::int64_t columns) {
  transpose_32bit(static_cast<const std::uint32_t*>(x), x_stride, static_cast<std::uint32_t*>(y), y_stride, rows,
                  columns);
}

using TransposeFunction = void (*)(const void*, std::int64_t, void*, std::int64_t, std::int64_t, std::int64_t);

TransposeFunction transpose_function(int element_bytes) {
  return element_bytes == 2 ? &transpose_tile_2byte : &transpose_tile_4byte;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

constexpr std::int64_t kTile = 32;

auto transpose_function_of(const Target& target, int element_bytes) {
#define GABLE_CPU_CASE(target_id, ns, name) \
  if (target.id == (target_id)) return ns::transpose_function(element_bytes);
  GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_CASE)
#undef GABLE_CPU_CASE
  return HWY_STATIC_DISPATCH(transpose_function)(element_bytes);
}

/// `images` transposes of one shape, image i at i*image_elements in both arrays.
void transpose_images(const Transpose2d& shape, std::int64_t images, std::int64_t image_elements, const void* x,
                      void* y, int element_bytes, const Target& target, int threads) {
  if (element_bytes != 2 && element_bytes != 4) {
    throw std::invalid_argument("transpose: element_bytes is " + std::to_string(element_bytes) + ", must be 2 or 4");
  }
  note_path(element_bytes == 2 ? Path::transpose_2byte : Path::transpose_4byte, target);
  const auto transpose_tile = transpose_function_of(target, element_bytes);
  const std::int64_t stripes = ceil_div(shape.columns, kTile);
  parallel_units(threads, images * stripes, [&](std::int64_t unit, int) {
    const std::int64_t offset = unit / stripes * image_elements;
    const std::int64_t column = unit % stripes * kTile;
    const std::int64_t columns = std::min(kTile, shape.columns - column);
    for (std::int64_t row = 0; row < shape.rows; row += kTile) {
      const char* from = static_cast<const char*>(x) + (offset + row * shape.x_stride + column) * element_bytes;
      char* to = static_cast<char*>(y) + (offset + column * shape.y_stride + row) * element_bytes;
      transpose_tile(from, shape.x_stride, to, shape.y_stride, std::min(kTile, shape.rows - row), columns);
    }
  });
}

}  // namespace

void transpose(const Transpose2d& shape, const void* x, void* y, int element_bytes, const Target& target, int threads) {
  transpose_images(shape, 1, 0, x, y, element_bytes, target, threads);
}

void nchw_to_nhwc(const void* x, void* y, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
                  int element_bytes, const Target& target, int threads) {
  transpose_images({c, h * w, h * w, c}, n, c * h * w, x, y, element_bytes, target, threads);
}

void nhwc_to_nchw(const void* x, void* y, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
                  int element_bytes, const Target& target, int threads) {
  transpose_images({h * w, c, c, h * w}, n, c * h * w, x, y, element_bytes, target, threads);
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
