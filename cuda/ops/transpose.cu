// `transpose_squares_kernel`: a thread loads a square of 16 bytes a row (4x4 or 8x8 elements), turns it over in
// registers and puts its columns into shared memory as 16-byte units, whose place is XORed with the thread's so that
// neither side has bank conflicts. `transpose_elements_kernel`: 32x32 elements one by one, for sizes and addresses that
// are not multiples of 16 bytes.
#include "cuda/ops/transpose.h"

#include <algorithm>

#include <gable/problem.h>
#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"

namespace gable::cuda {
namespace {

constexpr int kSide = 16;  // squares a tile side; threads are kSide x kSide

template <typename T>
constexpr int kSquare = 16 / static_cast<int>(sizeof(T));

struct TileGrid {
  std::int64_t rows, columns;
  int tile_rows, tile_columns;
};

/// Which matrix and tile a block has; tiles are walked row by row.
struct TileAt {
  std::int64_t batch;
  int row, column;
};

__device__ __forceinline__ TileAt tile_at(const TileGrid& g) {
  const unsigned tiles = static_cast<unsigned>(g.tile_rows) * g.tile_columns;
  const unsigned tile = blockIdx.x % tiles;
  return {blockIdx.x / tiles, static_cast<int>(tile / g.tile_columns), static_cast<int>(tile % g.tile_columns)};
}

template <typename T>
__global__ __launch_bounds__(kSide* kSide) void transpose_squares_kernel(const T* x, T* y, TileGrid g) {
  constexpr int square = kSquare<T>;
  constexpr int side = kSide * square;
  __shared__ uint4 tile[side][kSide];
  const TileAt at = tile_at(g);
  const int tx = threadIdx.x % kSide;
  const int ty = threadIdx.x / kSide;
  x += at.batch * g.rows * g.columns;
  y += at.batch * g.rows * g.columns;

  union Square {
    uint4 units[square];
    T elements[square][square];
    __device__ Square() {}
  };
  Square in;
  wait_for_previous_kernel();
  const std::int64_t column = static_cast<std::int64_t>(at.column) * side + tx * square;
  const std::int64_t row = static_cast<std::int64_t>(at.row) * side + ty * square;
  if (column < g.columns && row < g.rows) {
#pragma unroll
    for (int i = 0; i < square; ++i)
      in.units[i] = __ldcs(reinterpret_cast<const uint4*>(x + (row + i) * g.columns + column));
#pragma unroll
    for (int j = 0; j < square; ++j) {
      Square out;
#pragma unroll
      for (int i = 0; i < square; ++i) out.elements[0][i] = in.elements[i][j];
      tile[tx * square + j][ty ^ tx] = out.units[0];
    }
  }
  __syncthreads();
  const std::int64_t out_column = static_cast<std::int64_t>(at.row) * side + tx * square;
  if (out_column >= g.rows) return;
#pragma unroll
  for (int i = 0; i < square; ++i) {
    const int out_row = ty + i * kSide;
    const std::int64_t to = static_cast<std::int64_t>(at.column) * side + out_row;
    if (to < g.columns) {
      __stcs(reinterpret_cast<uint4*>(y + to * g.rows + out_column), tile[out_row][tx ^ (out_row / square)]);
    }
  }
}

constexpr int kTile = 32;
constexpr int kTileRows = 8;

template <typename T>
__global__ __launch_bounds__(kTile* kTileRows) void transpose_elements_kernel(const T* x, T* y, TileGrid g) {
  __shared__ T tile[kTile][kTile + (sizeof(T) == 2 ? 2 : 1)];
  const TileAt at = tile_at(g);
  const int tx = threadIdx.x % kTile;
  const int ty = threadIdx.x / kTile;
  x += at.batch * g.rows * g.columns;
  y += at.batch * g.rows * g.columns;
  const std::int64_t row = static_cast<std::int64_t>(at.row) * kTile;
  const std::int64_t column = static_cast<std::int64_t>(at.column) * kTile;
  wait_for_previous_kernel();
#pragma unroll
  for (int i = ty; i < kTile; i += kTileRows)
    if (row + i < g.rows && column + tx < g.columns) tile[i][tx] = x[(row + i) * g.columns + column + tx];
  __syncthreads();
#pragma unroll
  for (int i = ty; i < kTile; i += kTileRows)
    if (column + i < g.columns && row + tx < g.rows) y[(column + i) * g.rows + row + tx] = tile[tx][i];
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

struct Matrices {
  std::int64_t batch, rows, columns;
};

template <typename T>
void transpose_matrices(const void* x, void* y, const Matrices& m, cudaStream_t stream) {
  const auto* from = static_cast<const T*>(x);
  auto* to = static_cast<T*>(y);
  constexpr int square = kSquare<T>;
  const bool in_squares = m.rows % square == 0 && m.columns % square == 0 && aligned(x) && aligned(y);
  const int side = in_squares ? kSide * square : kTile;
  const TileGrid g{m.rows, m.columns, static_cast<int>(ceil_div(m.rows, side)),
                   static_cast<int>(ceil_div(m.columns, side))};
  const auto blocks = static_cast<unsigned>(m.batch * g.tile_rows * g.tile_columns);
  if (in_squares) {
    launch(transpose_squares_kernel<T>, {dim3(blocks), kSide * kSide, 0, launches_overlap()}, stream, from, to, g);
    note_path(Path::transpose_squares);
  } else {
    launch(transpose_elements_kernel<T>, {dim3(blocks), kTile * kTileRows, 0, launches_overlap()}, stream, from, to, g);
    note_path(Path::transpose_elements);
  }
}

}  // namespace

void transpose(const void* x, void* y, std::int64_t batch, std::int64_t rows, std::int64_t columns, int element_bytes,
               cudaStream_t stream) {
  if (element_bytes == 4) {
    transpose_matrices<std::uint32_t>(x, y, {batch, rows, columns}, stream);
  } else {
    transpose_matrices<std::uint16_t>(x, y, {batch, rows, columns}, stream);
  }
}

}  // namespace gable::cuda
