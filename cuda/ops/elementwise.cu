// A thread adds kBatch vectors of 16 bytes that lie a block apart, and loads all of them before it uses the first. The
// tail, and arrays that are not aligned to 16 bytes, are added one element at a time.
#include "cuda/ops/elementwise.h"

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBatch = 2;

template <typename T, bool relu>
__device__ __forceinline__ T sum_of(T a, T b) {
  const float sum = to_f32(a) + to_f32(b);
  return from_f32<T>(relu ? max_or_nan(sum, 0.0f) : sum);
}

template <typename T, bool relu>
__global__ __launch_bounds__(kThreads) void add_runs_kernel(const T* a, const T* b, T* y, std::int64_t runs) {
  constexpr int run = 16 / static_cast<int>(sizeof(T));
  union Run {
    uint4 bits;
    T elements[run];
    __device__ Run() {}
  };
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads * kBatch + threadIdx.x;
  Run left[kBatch];
  Run right[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (first + i * kThreads < runs) {
      left[i].bits = __ldcs(reinterpret_cast<const uint4*>(a) + first + i * kThreads);
      right[i].bits = __ldcs(reinterpret_cast<const uint4*>(b) + first + i * kThreads);
    }
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
#pragma unroll
    for (int j = 0; j < run; ++j) left[i].elements[j] = sum_of<T, relu>(left[i].elements[j], right[i].elements[j]);
    if (first + i * kThreads < runs) __stcs(reinterpret_cast<uint4*>(y) + first + i * kThreads, left[i].bits);
  }
}

template <typename T, bool relu>
__global__ __launch_bounds__(kThreads) void add_elements_kernel(const T* a, const T* b, T* y, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step)
    y[i] = sum_of<T, relu>(a[i], b[i]);
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <typename T, bool relu>
void add_as(const void* a, const void* b, void* y, std::int64_t count, cudaStream_t stream) {
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  auto* to = static_cast<T*>(y);
  constexpr std::int64_t run = 16 / sizeof(T);
  constexpr std::int64_t block = kThreads * kBatch;
  constexpr std::int64_t most_blocks = 0x7fffffff;
  std::int64_t runs = aligned(a) && aligned(b) && aligned(y) ? count / run : 0;
  if ((runs + block - 1) / block > most_blocks) runs = 0;
  if (runs > 0) {
    add_runs_kernel<T, relu>
        <<<static_cast<unsigned>((runs + block - 1) / block), kThreads, 0, stream>>>(left, right, to, runs);
    check_launch("add");
    note_path(Path::add_vectors);
  }
  const std::int64_t rest = count - runs * run;
  if (rest > 0) {
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((rest + kThreads - 1) / kThreads, 1 << 16));
    add_elements_kernel<T, relu>
        <<<blocks, kThreads, 0, stream>>>(left + runs * run, right + runs * run, to + runs * run, rest);
    check_launch("add");
    note_path(Path::add_elements);
  }
}

template <typename T>
__global__ __launch_bounds__(kThreads) void convert_kernel(const float* from, T* to, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) to[i] = from_f32<T>(from[i]);
}

}  // namespace

void add(const Addition& addition, const void* a, const void* b, void* c, cudaStream_t stream) {
  with_type(addition.type, [&](auto zero) {
    using T = decltype(zero);
    const auto add_one = addition.activation == Activation::relu ? add_as<T, true> : add_as<T, false>;
    add_one(a, b, c, addition.count, stream);
  });
}

void convert(const float* from, void* to, std::int64_t elements, DType type, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((elements + kThreads - 1) / kThreads);
  with_type(type, [&](auto zero) {
    convert_kernel<<<blocks, kThreads, 0, stream>>>(from, static_cast<decltype(zero)*>(to), elements);
  });
  check_launch("convert");
}

}  // namespace gable::cuda
