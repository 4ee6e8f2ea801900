// Transpose by tiles of 64 rows x 512 bytes. A tile's rows are first copied into an L1 buffer (36 KiB), whole cache
// lines of each row at a time, while the next tile is prefetched: rows a power of two apart share a few sets of every
// cache, so a line that is read in parts would be evicted in between. Vectors are loaded from the buffer in 128-bit
// blocks, 4 (4-byte) or 8 (2-byte) elements of rows that lie 4 or 8 apart. Interleaving 4 or 8 such vectors gives
// vectors of columns: on AVX-512 a column's whole line, with non-temporal stores where the result exceeds the last
// level. Threads take stripes of rows. A 16x16 block of 4 bytes is 32 interleaves and 48 inserts for 1 KiB: 40 cycles
// of 2 shuffle units.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/ops/transpose.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/ops/transpose.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/common/vector-inl.h"
#include "cpu/ops/transpose_stripe.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// A tile's buffer: rows a line longer than the tile's, so that they do not share sets either.
constexpr std::int64_t kPitchBytes = kTileRowBytes + 64;

#if HWY_TARGET != HWY_SCALAR
/// The vector whose 128-bit block b is the elements at x of row b * (elements of a block).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_blocks(D d, const T* HWY_RESTRICT x, std::int64_t stride) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) <= 16) {
    return hn::LoadU(d, x);
  } else {
    const hn::Half<D> half;
    constexpr auto kRows = static_cast<std::int64_t>(hn::MaxLanes(hn::Half<D>()));
    return hn::Combine(d, load_blocks(half, x + kRows * stride, stride), load_blocks(half, x, stride));
  }
}

/// Stores column `column` of a block.
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE void store_column(D d, V value, T* y, bool non_temporal) {
  const auto lanes = hn::BitCast(d, value);
  if (non_temporal) {
    hn::Stream(lanes, d, y);
  } else {
    hn::StoreU(lanes, d, y);
  }
}

/// Lanes of D rows x 4 columns of 32 bits: two rounds of interleaving, of 32 and 64 bits.
template <class D>
HWY_INLINE void transpose_block(D d, const std::uint32_t* HWY_RESTRICT x, std::int64_t x_stride,
                                std::uint32_t* HWY_RESTRICT y, std::int64_t y_stride, bool non_temporal) {
  const hn::Repartition<std::uint64_t, D> d64;
  const auto r0 = load_blocks(d, x, x_stride);
  const auto r1 = load_blocks(d, x + x_stride, x_stride);
  const auto r2 = load_blocks(d, x + 2 * x_stride, x_stride);
  const auto r3 = load_blocks(d, x + 3 * x_stride, x_stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  store_column(d, hn::InterleaveLower(d64, low01, low23), y, non_temporal);
  store_column(d, hn::InterleaveUpper(d64, low01, low23), y + y_stride, non_temporal);
  store_column(d, hn::InterleaveLower(d64, high01, high23), y + 2 * y_stride, non_temporal);
  store_column(d, hn::InterleaveUpper(d64, high01, high23), y + 3 * y_stride, non_temporal);
}

/// Lanes of D rows x 8 columns of 16 bits: three rounds, of 16, 32 and 64 bits.
template <class D>
HWY_INLINE void transpose_block(D d, const std::uint16_t* HWY_RESTRICT x, std::int64_t x_stride,
                                std::uint16_t* HWY_RESTRICT y, std::int64_t y_stride, bool non_temporal) {
  const hn::Repartition<std::uint32_t, D> d32;
  const hn::Repartition<std::uint64_t, D> d64;
  hn::Vec<decltype(d32)> low[4], high[4];
  for (int i = 0; i < 4; ++i) {
    const auto a = load_blocks(d, x + 2 * i * x_stride, x_stride);
    const auto b = load_blocks(d, x + (2 * i + 1) * x_stride, x_stride);
    low[i] = hn::BitCast(d32, hn::InterleaveLower(d, a, b));
    high[i] = hn::BitCast(d32, hn::InterleaveUpper(d, a, b));
  }
  for (int half = 0; half < 2; ++half) {
    const auto* pairs = half == 0 ? low : high;
    for (int upper = 0; upper < 2; ++upper) {
      const auto a = hn::BitCast(d64, upper == 0 ? hn::InterleaveLower(d32, pairs[0], pairs[1])
                                                 : hn::InterleaveUpper(d32, pairs[0], pairs[1]));
      const auto b = hn::BitCast(d64, upper == 0 ? hn::InterleaveLower(d32, pairs[2], pairs[3])
                                                 : hn::InterleaveUpper(d32, pairs[2], pairs[3]));
      auto* column = y + (4 * half + 2 * upper) * y_stride;
      store_column(d, hn::InterleaveLower(d64, a, b), column, non_temporal);
      store_column(d, hn::InterleaveUpper(d64, a, b), column + y_stride, non_temporal);
    }
  }
}

/// Transposes as many rows of [row, rows) as fill whole vectors of D, then of half of D. Returns the first row left.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE std::int64_t transpose_rows(D d, const T* HWY_RESTRICT x, std::int64_t x_stride, T* HWY_RESTRICT y,
                                       std::int64_t y_stride, std::int64_t row, std::int64_t rows, std::int64_t columns,
                                       bool non_temporal) {
  constexpr auto kRows = static_cast<std::int64_t>(hn::MaxLanes(D()));
  constexpr std::int64_t kColumns = 16 / sizeof(T);
  for (; row + kRows <= rows; row += kRows) {
    for (std::int64_t column = 0; column < columns; column += kColumns) {
      transpose_block(d, x + row * x_stride + column, x_stride, y + column * y_stride + row, y_stride, non_temporal);
    }
  }
  if constexpr (kRows > kColumns) {
    return transpose_rows(hn::Half<D>(), x, x_stride, y, y_stride, row, rows, columns, non_temporal);
  }
  return row;
}

/// Elements of 128 bits: the rows and the columns of the smallest block.
template <class T>
constexpr std::int64_t kBlock = 16 / sizeof(T);
template <class T>
using BlockTag = hn::CappedTag<T, 16 / sizeof(T)>;

/// At least kBlock rows and columns. The last blocks begin earlier where rows or columns are no whole blocks.
template <class T>
HWY_INLINE void transpose_blocks(const T* HWY_RESTRICT x, std::int64_t x_stride, T* HWY_RESTRICT y,
                                 std::int64_t y_stride, std::int64_t rows, std::int64_t columns, bool non_temporal) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  // All rows of a few columns, then the next columns: narrow vectors complete the lines that they store, and
  // neighbouring lines, four a tile, are stored one after another.
  for (std::int64_t next = 0; next < columns; next += kBlock<T>) {
    const std::int64_t column = std::min(next, columns - kBlock<T>);
    std::int64_t done = 0;
    for (std::int64_t row = 0; row < rows; row += kLine) {
      const std::int64_t end = std::min(rows, row + kLine);
      done = transpose_rows(hn::ScalableTag<T>(), x + column, x_stride, y + column * y_stride, y_stride, row, end,
                            kBlock<T>, non_temporal);
    }
    if (done == rows) continue;
    const std::int64_t last = rows - kBlock<T>;
    transpose_block(BlockTag<T>(), x + last * x_stride + column, x_stride, y + column * y_stride + last, y_stride,
                    false);
  }
}

/// Fewer than kBlock rows, which follow one another in y: a block's columns are stored as whole blocks, each of which
/// overwrites what the one before stored beyond its rows. Returns the first column left.
template <class T>
HWY_INLINE std::int64_t interleave_rows(const T* HWY_RESTRICT x, std::int64_t x_stride, T* HWY_RESTRICT y,
                                        std::int64_t rows, std::int64_t columns) {
  const BlockTag<T> d;
  HWY_ALIGN T block[kBlock<T> * kBlock<T>] = {};
  std::int64_t column = 0;
  // The last whole block that is stored ends with y.
  for (; (column + kBlock<T> - 1) * rows + kBlock<T> <= columns * rows; column += kBlock<T>) {
    for (std::int64_t row = 0; row < rows; ++row) {
      hn::Store(hn::LoadU(d, x + row * x_stride + column), d, block + row * kBlock<T>);
    }
    transpose_block(d, block, kBlock<T>, y + column * rows, rows, false);
  }
  return column;
}

/// Fewer than kBlock columns, in vectors of D, then of half of D: whole blocks are read, into the next rows. Rows from
/// `end` on are too near to x's end for that. Returns the first row left.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE std::int64_t split_columns(D d, const T* HWY_RESTRICT x, std::int64_t x_stride, T* HWY_RESTRICT y,
                                      std::int64_t y_stride, std::int64_t row, std::int64_t end, std::int64_t columns) {
  constexpr auto kRows = static_cast<std::int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN T block[kBlock<T> * kRows];
  for (; row + kRows <= end; row += kRows) {
    transpose_block(d, x + row * x_stride, x_stride, block, kRows, false);
    for (std::int64_t column = 0; column < columns; ++column) {
      hn::StoreU(hn::Load(d, block + column * kRows), d, y + column * y_stride + row);
    }
  }
  if constexpr (kRows > kBlock<T>) {
    return split_columns(hn::Half<D>(), x, x_stride, y, y_stride, row, end, columns);
  }
  return row;
}
#endif

/// Any size. With `non_temporal`, y and its rows are aligned to cache lines.
template <class T>
HWY_INLINE void transpose_any(const T* HWY_RESTRICT x, std::int64_t x_stride, T* HWY_RESTRICT y, std::int64_t y_stride,
                              std::int64_t rows, std::int64_t columns, [[maybe_unused]] bool non_temporal) {
  std::int64_t first_row = 0, first_column = 0;
  if (rows == 1 && y_stride == 1) return void(std::copy_n(x, columns, y));
  if (columns == 1 && x_stride == 1) return void(std::copy_n(x, rows, y));
#if HWY_TARGET != HWY_SCALAR
  if (rows >= kBlock<T> && columns >= kBlock<T>) {
    return transpose_blocks(x, x_stride, y, y_stride, rows, columns, non_temporal);
  }
  if (rows < kBlock<T> && y_stride == rows) {
    first_column = interleave_rows(x, x_stride, y, rows, columns);
  } else if (columns < kBlock<T>) {
    const std::int64_t beyond = ceil_div(kBlock<T> - columns, x_stride);  // rows that a block reads after its own
    first_row = split_columns(hn::ScalableTag<T>(), x, x_stride, y, y_stride, 0, rows - beyond, columns);
  }
#endif
  for (std::int64_t row = first_row; row < rows; ++row) {
    for (std::int64_t column = first_column; column < columns; ++column) {
      y[column * y_stride + row] = x[row * x_stride + column];
    }
  }
}

/// Copies a tile, whole lines of its rows, into the buffer and prefetches the tile to its right.
template <class T>
HWY_INLINE void copy_tile(const T* HWY_RESTRICT x, std::int64_t x_stride, std::int64_t rows, std::int64_t columns,
                          T* HWY_RESTRICT buffer) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kPitch = kPitchBytes / sizeof(T);
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t line = 0; line < columns; line += kLine) {
      const T* from = x + row * x_stride + line;
      hwy::Prefetch(from + columns);
      for (std::int64_t i = 0; i < kLine; i += lanes) {
        hn::Store(hn::LoadU(d, from + i), d, buffer + row * kPitch + line + i);
      }
    }
  }
}

/// The columns of a stripe from `column` on, as many as fill tiles of so many columns. Returns the first column left.
template <class T>
HWY_INLINE std::int64_t transpose_tiles(const TransposeStripe& call, std::int64_t rows, std::int64_t columns,
                                        std::int64_t column, bool non_temporal) {
  constexpr std::int64_t kPitch = kPitchBytes / sizeof(T);
  HWY_ALIGN T buffer[kTileRows * kPitch];
  const auto* x = static_cast<const T*>(call.x);
  auto* y = static_cast<T*>(call.y);
  for (; column + columns <= call.columns; column += columns) {
    copy_tile(x + column, call.x_stride, rows, columns, buffer);
    transpose_any(buffer, kPitch, y + column * call.y_stride, call.y_stride, rows, columns, non_temporal);
  }
  return column;
}

/// Whether rows are copied, although they are fewer than a tile has. Rows of 4-byte elements are mostly read in place,
/// but not where rows lie so far apart that all lines share a few sets of L1, and push each other out.
template <class T>
HWY_INLINE bool copies_few_rows(std::int64_t rows, std::int64_t x_stride) {
  constexpr std::int64_t kSets = 4096, kKept = 14 * kSets;  // bytes of L1 with different sets; of lines in one set
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  return kBytes == 2 ? rows >= 8 : rows * std::gcd(x_stride * kBytes, kSets) > kKept;
}

template <class T>
void transpose_stripe(const TransposeStripe& call) {
  constexpr std::int64_t kColumns = kTileRowBytes / sizeof(T);
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const auto* x = static_cast<const T*>(call.x);
  auto* y = static_cast<T*>(call.y);
  std::int64_t column = 0;
  if (call.rows == kTileRows) {
    column = transpose_tiles<T>(call, kTileRows, kColumns, 0, call.non_temporal);
  } else if (call.columns >= 2 * kLine && copies_few_rows<T>(call.rows, call.x_stride)) {
    column = transpose_tiles<T>(call, call.rows, kColumns, 0, false);
    const std::int64_t left = (call.columns - column) / kLine * kLine;
    if (left > 0) column = transpose_tiles<T>(call, call.rows, left, column, false);
  }
  transpose_any(x + column, call.x_stride, y + column * call.y_stride, call.y_stride, call.rows, call.columns - column,
                false);
  if (call.non_temporal) hwy::FlushStream();
}

using TransposeFunction = void (*)(const TransposeStripe&);

TransposeFunction transpose_function(int element_bytes) {
  return element_bytes == 2 ? &transpose_stripe<std::uint16_t> : &transpose_stripe<std::uint32_t>;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {
namespace {

/// Columns of a stripe where all rows fit one tile.
constexpr std::int64_t kFewRowsColumns = 1024;

auto transpose_function_of(const Target& target, int element_bytes) {
  GABLE_CPU_RETURN_OF(target, transpose_function(element_bytes));
}

/// With few rows, as in images of few channels, threads take stripes of columns.
std::int64_t stripe_columns_of(std::int64_t rows, std::int64_t columns) {
  return rows <= kTileRows ? kFewRowsColumns : columns;
}

/// How threads share a matrix x.
enum class Sharing {
  rows,
  columns,  // so that a thread writes neighbouring rows of y, which the next kernel on this thread reads
};

/// What runs the kernel, and how its threads share a matrix.
struct Cores {
  const Target& target;
  int threads;
  Sharing sharing;
};

/// The parts of a matrix that are units of work: kTileRows rows of `width` columns each.
struct Stripes {
  std::int64_t rows, columns, width;  // the number of parts each way, and the columns of one
  bool columns_first;                 // units of the same columns follow one another

  std::int64_t count() const { return rows * columns; }
  std::int64_t row(std::int64_t unit) const { return (columns_first ? unit % rows : unit / columns) * kTileRows; }
  std::int64_t column(std::int64_t unit) const { return (columns_first ? unit / rows : unit % columns) * width; }
};

Stripes stripes_of(const Transpose2d& shape, std::int64_t element_bytes, int threads, Sharing sharing) {
  std::int64_t width = stripe_columns_of(shape.rows, shape.columns);
  const bool by_columns = sharing == Sharing::columns && threads > 1 && shape.rows > kTileRows;
  if (by_columns) {
    const std::int64_t tile = kTileRowBytes / element_bytes;
    const std::int64_t even = ceil_div(shape.columns, units_wanted(threads));
    width = std::min(width, ceil_div(even, tile) * tile);
  }
  return {ceil_div(shape.rows, kTileRows), ceil_div(shape.columns, width), width, by_columns};
}

/// `count` matrices of one shape and element size, matrix i at i*elements in x and in y.
struct Matrices {
  Transpose2d shape;
  std::int64_t count, elements;
  int element_bytes;
};

/// Whether the result exceeds the last level, and each of its rows begins on a cache line.
bool stores_non_temporal(const Matrices& matrices, const void* y) {
  const std::int64_t y_row = matrices.shape.y_stride * matrices.element_bytes;
  return beyond_last_level(matrices.count * matrices.shape.columns * y_row) && y_row % 64 == 0 &&
         matrices.elements * matrices.element_bytes % 64 == 0 && reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
}

void transpose_matrices(const Matrices& matrices, const void* x, void* y, const Cores& on) {
  const Transpose2d& shape = matrices.shape;
  const int bytes = matrices.element_bytes;
  if (bytes != 2 && bytes != 4) {
    throw std::invalid_argument("transpose: element_bytes is " + std::to_string(bytes) + ", must be 2 or 4");
  }
  note_path(bytes == 2 ? Path::transpose_2byte : Path::transpose_4byte, on.target);
  const bool non_temporal = stores_non_temporal(matrices, y);
  if (non_temporal) note_path(Path::transpose_non_temporal, on.target);
  const auto transpose_stripe = transpose_function_of(on.target, bytes);
  const Stripes stripes = stripes_of(shape, bytes, on.threads, non_temporal ? Sharing::rows : on.sharing);
  parallel_units(on.threads, matrices.count * stripes.count(), [&](std::int64_t unit, int) {
    const std::int64_t offset = unit / stripes.count() * matrices.elements;
    const std::int64_t row = stripes.row(unit % stripes.count()), column = stripes.column(unit % stripes.count());
    transpose_stripe({.x = static_cast<const char*>(x) + (offset + row * shape.x_stride + column) * bytes,
                      .x_stride = shape.x_stride,
                      .y = static_cast<char*>(y) + (offset + column * shape.y_stride + row) * bytes,
                      .y_stride = shape.y_stride,
                      .rows = std::min(kTileRows, shape.rows - row),
                      .columns = std::min(stripes.width, shape.columns - column),
                      .non_temporal = non_temporal});
  });
}

}  // namespace

std::int64_t transpose_units(std::int64_t matrices, std::int64_t rows, std::int64_t columns) {
  return matrices * ceil_div(rows, kTileRows) * ceil_div(columns, stripe_columns_of(rows, columns));
}

void transpose(const Transpose2d& shape, const void* x, void* y, int element_bytes, const Target& target, int threads) {
  transpose_matrices({shape, 1, 0, element_bytes}, x, y, {target, threads, Sharing::rows});
}

void nchw_to_nhwc(const Images& images, const void* x, void* y, const Target& target, int threads) {
  const std::int64_t c = images.c, pixels = images.h * images.w;
  transpose_matrices({{c, pixels, pixels, c}, images.n, c * pixels, images.element_bytes}, x, y,
                     {target, threads, Sharing::columns});
}

void nhwc_to_nchw(const Images& images, const void* x, void* y, const Target& target, int threads) {
  const std::int64_t c = images.c, pixels = images.h * images.w;
  transpose_matrices({{pixels, c, c, pixels}, images.n, c * pixels, images.element_bytes}, x, y,
                     {target, threads, Sharing::rows});
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
