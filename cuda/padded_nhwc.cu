// See padded_nhwc.h. Transpositions go through tiles of 64 channels by 64 pixels in shared memory (8.3 KB of 16-bit
// elements), rows padded by one element so that columns meet no bank conflict worth naming; both sides move runs of 64.
#include "cuda/padded_nhwc.h"

#include <algorithm>

#include "cuda/check.h"
#include "cuda/types.h"

namespace gable::cuda {
namespace {

constexpr int kTile = 64, kTileThreads = 256, kCopyThreads = 256;
constexpr int kRowsAtOnce = kTileThreads / kTile;

/// to[j][i] = from[i][j] of a batch; i < rows, j < columns, rows of `to` hold to_pitch elements, zeros from `rows` on.
template <typename E>
__global__ void transpose_padded(const E* __restrict__ from, E* __restrict__ to, std::int64_t rows,
                                 std::int64_t columns, std::int64_t from_pitch, std::int64_t to_pitch, int tiles_i) {
  __shared__ E tile[kTile][kTile + 1];
  const std::int64_t first_i = static_cast<std::int64_t>(blockIdx.x % tiles_i) * kTile;
  const std::int64_t first_j = static_cast<std::int64_t>(blockIdx.x / tiles_i) * kTile;
  const int lane = threadIdx.x % kTile, start = threadIdx.x / kTile;
  from += blockIdx.y * rows * from_pitch;
  to += blockIdx.y * columns * to_pitch;
#pragma unroll
  for (int r = start; r < kTile; r += kRowsAtOnce) {
    const std::int64_t i = first_i + r, j = first_j + lane;
    tile[r][lane] = i < rows && j < columns ? from[i * from_pitch + j] : E{};
  }
  __syncthreads();
#pragma unroll
  for (int r = start; r < kTile; r += kRowsAtOnce) {
    const std::int64_t j = first_j + r, i = first_i + lane;
    if (j < columns && i < to_pitch) to[j * to_pitch + i] = tile[lane][r];
  }
}

/// Rows of `count` elements from one pitch to another; a thread moves one element, zeros behind `count`.
template <typename E>
__global__ void copy_rows(const E* __restrict__ from, E* __restrict__ to, std::int64_t rows, std::int64_t count,
                          std::int64_t from_pitch, std::int64_t to_pitch) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t at = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; at < rows * to_pitch;
       at += stride) {
    const std::int64_t row = at / to_pitch, column = at % to_pitch;
    to[at] = column < count ? from[row * from_pitch + column] : E{};
  }
}

template <typename E>
void launch_copy(const void* from, void* to, std::int64_t rows, std::int64_t count, std::int64_t from_pitch,
                 std::int64_t to_pitch, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 8192;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, ceil_div(rows * to_pitch, kCopyThreads)));
  copy_rows<<<blocks, kCopyThreads, 0, stream>>>(static_cast<const E*>(from), static_cast<E*>(to), rows, count,
                                                 from_pitch, to_pitch);
  check_launch("copy_rows");
}

template <typename E>
void launch_transpose(const void* from, void* to, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                      std::int64_t from_pitch, std::int64_t to_pitch, cudaStream_t stream) {
  constexpr std::int64_t kMostImages = 65535;  // of a grid's second dimension
  const auto tiles_i = static_cast<int>(ceil_div(std::max(rows, to_pitch), kTile));
  const auto tiles = static_cast<unsigned>(tiles_i * ceil_div(columns, kTile));
  for (std::int64_t done = 0; done < batch; done += kMostImages) {
    const auto images = static_cast<unsigned>(std::min(kMostImages, batch - done));
    transpose_padded<<<dim3(tiles, images), kTileThreads, 0, stream>>>(
        static_cast<const E*>(from) + done * rows * from_pitch, static_cast<E*>(to) + done * columns * to_pitch, rows,
        columns, from_pitch, to_pitch, tiles_i);
    check_launch("transpose_padded");
  }
}

}  // namespace

void to_padded_nhwc(const ChannelsShape& s, const void* x, void* out, cudaStream_t stream) {
  if (s.nhwc) {
    const auto copy = s.element_bytes == 4 ? launch_copy<std::uint32_t> : launch_copy<std::uint16_t>;
    copy(x, out, s.n * s.pixels, s.c, s.c, s.padded_c, stream);
  } else {
    const auto move = s.element_bytes == 4 ? launch_transpose<std::uint32_t> : launch_transpose<std::uint16_t>;
    move(x, out, s.n, s.c, s.pixels, s.pixels, s.padded_c, stream);
  }
}

void from_padded_nhwc(const ChannelsShape& s, const void* in, void* y, cudaStream_t stream) {
  if (s.nhwc) {
    const auto copy = s.element_bytes == 4 ? launch_copy<std::uint32_t> : launch_copy<std::uint16_t>;
    copy(in, y, s.n * s.pixels, s.c, s.padded_c, s.c, stream);
  } else {
    const auto move = s.element_bytes == 4 ? launch_transpose<std::uint32_t> : launch_transpose<std::uint16_t>;
    move(in, y, s.n, s.pixels, s.c, s.padded_c, s.pixels, stream);
  }
}

}  // namespace gable::cuda
