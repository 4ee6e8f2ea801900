// Tiles of 32×32 elements pass through shared memory, so that reads and writes are both along rows. A row of a tile is
// 33 elements there: a column then lies in 32 different banks.
#include "cuda/transpose.h"

#include "cuda/check.h"
#include "cuda/types.h"

namespace gable::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kRows = 8;  // of threads: each moves four elements

struct Tiles {
  std::int64_t down, across, count;
};

template <typename T>
__global__ void transpose_kernel(const T* x, T* y, std::int64_t rows, std::int64_t columns, Tiles tiles) {
  __shared__ T tile[kTile][kTile + 1];
  const std::int64_t block = blockIdx.x;
  const std::int64_t matrix = block / (tiles.down * tiles.across) * rows * columns;
  const std::int64_t row = block / tiles.across % tiles.down * kTile;
  const std::int64_t column = block % tiles.across * kTile;
  const int lane = threadIdx.x;
  for (int i = threadIdx.y; i < kTile; i += kRows) {
    if (row + i < rows && column + lane < columns) tile[i][lane] = x[matrix + (row + i) * columns + column + lane];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += kRows) {
    if (column + i < columns && row + lane < rows) y[matrix + (column + i) * rows + row + lane] = tile[lane][i];
  }
}

template <typename T>
void launch(const void* x, void* y, std::int64_t batch, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  Tiles tiles{.down = ceil_div(rows, kTile), .across = ceil_div(columns, kTile), .count = 0};
  tiles.count = batch * tiles.down * tiles.across;
  transpose_kernel<T><<<static_cast<unsigned>(tiles.count), dim3(kTile, kRows), 0, stream>>>(
      static_cast<const T*>(x), static_cast<T*>(y), rows, columns, tiles);
}

}  // namespace

void transpose(const void* x, void* y, std::int64_t batch, std::int64_t rows, std::int64_t columns, int element_bytes,
               cudaStream_t stream) {
  if (element_bytes == 4) {
    launch<std::uint32_t>(x, y, batch, rows, columns, stream);
  } else {
    launch<std::uint16_t>(x, y, batch, rows, columns, stream);
  }
  check_launch("transpose");
}

}  // namespace gable::cuda
