// Three passes over the elements of a vector, for its maximum, the sum, and the results; the caches hold it after the
// first. A warp takes a short row, a block a long one. Where elements lie apart, a thread takes a column.
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

template <int threads, typename T>
__device__ __forceinline__ void softmax_of_row(const T* x, T* y, std::int64_t count, int thread) {
  float greatest = Greatest::kNone;
  for (std::int64_t i = thread; i < count; i += threads) greatest = fmaxf(greatest, to_f32(x[i]));
  greatest = of_all<threads>(greatest, Greatest());
  float sum = 0;
  for (std::int64_t i = thread; i < count; i += threads) sum += expf(to_f32(x[i]) - greatest);
  const float share = __fdiv_rn(1.0f, of_all<threads>(sum, Sum()));
  for (std::int64_t i = thread; i < count; i += threads) y[i] = from_f32<T>(expf(to_f32(x[i]) - greatest) * share);
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

template <typename T>
__global__ __launch_bounds__(kThreads) void softmax_columns_kernel(SoftmaxProblem p, const T* x, T* y) {
  const std::int64_t all = p.rows * p.columns, step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < all; i += step) {
    const std::int64_t first = i / p.columns * p.count * p.columns + i % p.columns;
    float greatest = Greatest::kNone;
    for (std::int64_t j = 0; j < p.count; ++j) greatest = fmaxf(greatest, to_f32(x[first + j * p.columns]));
    float sum = 0;
    for (std::int64_t j = 0; j < p.count; ++j) sum += expf(to_f32(x[first + j * p.columns]) - greatest);
    const float share = __fdiv_rn(1.0f, sum);
    for (std::int64_t j = 0; j < p.count; ++j) {
      const std::int64_t at = first + j * p.columns;
      y[at] = from_f32<T>(expf(to_f32(x[at]) - greatest) * share);
    }
  }
}

unsigned blocks_of(std::int64_t items, std::int64_t of_block) {
  return static_cast<unsigned>(std::min((items + of_block - 1) / of_block, kMostBlocks));
}

template <typename T>
void softmax_as(const SoftmaxProblem& p, const T* x, T* y, cudaStream_t stream) {
  if (p.columns > 1) {
    softmax_columns_kernel<<<blocks_of(p.rows * p.columns, kThreads), kThreads, 0, stream>>>(p, x, y);
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
