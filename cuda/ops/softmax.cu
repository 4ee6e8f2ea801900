// Three passes over the elements of a vector, for its maximum, the sum, and the results; the caches hold it after the
// first. A warp takes a short row, a block a long one. Where elements lie apart, neighbouring threads take neighbouring
// columns: one thread a column, or several that meet in shared memory where columns are too few to fill the device.
#include "cuda/ops/softmax.h"

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kLongestOfWarp = 2048;
constexpr std::int64_t kMostBlocks = 1 << 20;

/// Columns of a block with so many threads a column: at least a warp's, so that loads are coalesced.
constexpr int columns_of_block(int rows) { return rows <= kWarps ? kThreads / rows : 32; }

struct Greatest {
  static constexpr float kNone = -INFINITY;
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  static constexpr float kNone = 0.0f;
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <typename Combine>
__device__ __forceinline__ float of_warp(float value, const Combine& combine) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// Of `threads` threads: a warp, or a block.
template <int threads, typename Combine>
__device__ __forceinline__ float of_all(float value, const Combine& combine) {
  value = of_warp(value, combine);
  if constexpr (threads > 32) {
    __shared__ float of_warps[threads / 32];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp(threadIdx.x % 32 < threads / 32 ? of_warps[threadIdx.x % 32] : Combine::kNone, combine);
    __syncthreads();  // before the next use of the words
  }
  return value;
}

/// Of the `rows` threads that share a column of the block.
template <int rows, typename Combine>
__device__ __forceinline__ float of_column(float value, const Combine& combine) {
  if constexpr (rows > 1) {
    constexpr int columns = columns_of_block(rows);
    __shared__ float of_threads[rows * columns];
    of_threads[threadIdx.x] = value;
    __syncthreads();
    value = of_threads[threadIdx.x % columns];
#pragma unroll
    for (int row = 1; row < rows; ++row) value = combine(value, of_threads[row * columns + threadIdx.x % columns]);
    __syncthreads();  // before the next use of the words
  }
  return value;
}

/// What a thread takes of a vector: the elements begin, begin + step, ... below end.
struct Share {
  std::int64_t begin, end, step;
};

/// Summed in parts: the rounding error of one long chain grows with the vector's length, beyond the plan's bound.
template <typename T>
__device__ __forceinline__ float sum_of_exponentials(const T* x, const Share& share, float greatest) {
  constexpr int kPart = 256;
  float sum = 0;
  for (std::int64_t i = share.begin; i < share.end;) {
    const std::int64_t end = min(share.end, i + kPart * share.step);
    float part = 0;
    for (; i < end; i += share.step) part += expf(to_f32(x[i]) - greatest);
    sum += part;
  }
  return sum;
}

/// A thread's share of one vector. of_all(value, combine) combines the values of all threads that share the vector.
/// In place, an element is stored when all of them have read it for the last time.
template <typename T, typename OfAll>
__device__ __forceinline__ void softmax_of(const T* x, T* y, const Share& share, const OfAll& of_all) {
  float greatest = Greatest::kNone;
  for (std::int64_t i = share.begin; i < share.end; i += share.step) greatest = fmaxf(greatest, to_f32(x[i]));
  greatest = of_all(greatest, Greatest());
  const float factor = __fdiv_rn(1.0f, of_all(sum_of_exponentials(x, share, greatest), Sum()));
  for (std::int64_t i = share.begin; i < share.end; i += share.step)
    y[i] = from_f32<T>(expf(to_f32(x[i]) - greatest) * factor);
}

template <int threads, typename T>
__device__ __forceinline__ void softmax_of_row(const T* x, T* y, std::int64_t count, int thread) {
  softmax_of(x, y, {thread, count, threads}, [](float value, auto combine) { return of_all<threads>(value, combine); });
}

template <typename T>
__global__ __launch_bounds__(kThreads) void softmax_warps_kernel(SoftmaxProblem p, const T* x, T* y) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; row < p.rows; row += step)
    softmax_of_row<32>(x + row * p.count, y + row * p.count, p.count, static_cast<int>(threadIdx.x % 32));
}

template <typename T>
__global__ __launch_bounds__(kThreads) void softmax_blocks_kernel(SoftmaxProblem p, const T* x, T* y) {
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x)
    softmax_of_row<kThreads>(x + row * p.count, y + row * p.count, p.count, static_cast<int>(threadIdx.x));
}

/// `rows` threads a column.
template <int rows, typename T>
__global__ __launch_bounds__(rows* columns_of_block(rows)) void softmax_columns_kernel(SoftmaxProblem p, const T* x,
                                                                                       T* y) {
  constexpr int columns = columns_of_block(rows);
  const std::int64_t all = p.rows * p.columns, step = static_cast<std::int64_t>(gridDim.x) * columns;
  // A block's threads take the same turns: they wait for each other. Threads behind the last column have no elements.
  for (std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * columns; start < all; start += step) {
    const std::int64_t column = start + threadIdx.x % columns;
    const std::int64_t first = column / p.columns * p.count * p.columns + column % p.columns;
    const Share share{threadIdx.x / columns * p.columns, column < all ? p.count * p.columns : 0, rows * p.columns};
    softmax_of(x + first, y + first, share, [](float value, auto combine) { return of_column<rows>(value, combine); });
  }
}

unsigned blocks_of(std::int64_t items, std::int64_t of_block) {
  return static_cast<unsigned>(std::min((items + of_block - 1) / of_block, kMostBlocks));
}

template <int rows, typename T>
void softmax_columns_as(const SoftmaxProblem& p, const T* x, T* y, cudaStream_t stream) {
  constexpr int columns = columns_of_block(rows);
  softmax_columns_kernel<rows><<<blocks_of(p.rows * p.columns, columns), rows * columns, 0, stream>>>(p, x, y);
}

/// More threads a column where columns are few, but no more than have several elements each.
template <typename T>
void softmax_columns(const SoftmaxProblem& p, const T* x, T* y, cudaStream_t stream) {
  constexpr std::int64_t kMany = 1 << 18, kFew = 1 << 13, kElements = 4;  // kMany: fill the device with one thread each
  const std::int64_t columns = p.rows * p.columns;
  if (columns < kFew && p.count >= 32 * kElements) return softmax_columns_as<32>(p, x, y, stream);
  if (columns < kMany && p.count >= 8 * kElements) return softmax_columns_as<8>(p, x, y, stream);
  softmax_columns_as<1>(p, x, y, stream);
}

template <typename T>
void softmax_as(const SoftmaxProblem& p, const T* x, T* y, cudaStream_t stream) {
  if (p.columns > 1) {
    softmax_columns(p, x, y, stream);
    return note_path(Path::softmax_columns);
  }
  if (p.count <= kLongestOfWarp) {
    softmax_warps_kernel<<<blocks_of(p.rows, kWarps), kThreads, 0, stream>>>(p, x, y);
    return note_path(Path::softmax_warps);
  }
  softmax_blocks_kernel<<<blocks_of(p.rows, 1), kThreads, 0, stream>>>(p, x, y);
  note_path(Path::softmax_blocks);
}

}  // namespace

void softmax(const SoftmaxProblem& problem, const void* x, void* y, cudaStream_t stream) {
  with_type(problem.dtype, [&](auto zero) {
    softmax_as(problem, static_cast<const decltype(zero)*>(x), static_cast<decltype(zero)*>(y), stream);
  });
  check_launch("softmax");
}

}  // namespace gable::cuda
