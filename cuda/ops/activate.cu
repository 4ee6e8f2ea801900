// A thread loads 16 bytes, applies the function to their elements and stores them. The tail, and arrays that are not
// aligned to 16 bytes, are computed one element at a time.
#include "cuda/ops/activate.h"

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float clamp_f32(float x, float low, float high) { return fminf(fmaxf(x, low), high); }

/// Of numbers; a NaN may become anything.
template <Function function>
__device__ __forceinline__ float value_of(float x, [[maybe_unused]] float slope) {
  if constexpr (function == Function::relu) return fmaxf(x, 0.0f);
  if constexpr (function == Function::relu6) return clamp_f32(x, 0.0f, 6.0f);
  if constexpr (function == Function::tanh) return tanh_f32(x);
  if constexpr (function == Function::sigmoid) return __fdiv_rn(1.0f, 1.0f + expf(-x));
  if constexpr (function == Function::hard_sigmoid) return clamp_f32(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6);
  if constexpr (function == Function::silu) return __fdiv_rn(x, 1.0f + expf(-x));
  if constexpr (function == Function::hard_swish) return x * (clamp_f32(x + 3.0f, 0.0f, 6.0f) * (1.0f / 6));
  if constexpr (function == Function::leaky_relu) return x < 0.0f ? slope * x : x;
  if constexpr (function == Function::gelu) return x * normcdff(x);
}

template <Function function, typename T>
__device__ __forceinline__ T activated(T element, float slope) {
  const float x = to_f32(element);
  return from_f32<T>(x != x ? x : value_of<function>(x, slope));
}

template <Function function, typename T>
__global__ __launch_bounds__(kThreads) void activate_runs_kernel(const T* x, T* y, std::int64_t runs, float slope) {
  constexpr int run = 16 / static_cast<int>(sizeof(T));
  union Run {
    uint4 bits;
    T elements[run];
    __device__ Run() {}
  };
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= runs) return;
  Run values;
  values.bits = __ldcs(reinterpret_cast<const uint4*>(x) + i);
#pragma unroll
  for (int j = 0; j < run; ++j) values.elements[j] = activated<function>(values.elements[j], slope);
  __stcs(reinterpret_cast<uint4*>(y) + i, values.bits);
}

template <Function function, typename T>
__global__ __launch_bounds__(kThreads) void activate_elements_kernel(const T* x, T* y, std::int64_t count,
                                                                     float slope) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step)
    y[i] = activated<function>(x[i], slope);
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <Function function, typename T>
void activate_as(const void* from, void* to, std::int64_t count, float slope, cudaStream_t stream) {
  const auto* x = static_cast<const T*>(from);
  auto* y = static_cast<T*>(to);
  constexpr std::int64_t run = 16 / sizeof(T);
  constexpr std::int64_t most_blocks = 0x7fffffff;
  std::int64_t runs = aligned(x) && aligned(y) ? count / run : 0;
  if ((runs + kThreads - 1) / kThreads > most_blocks) runs = 0;
  if (runs > 0) {
    activate_runs_kernel<function>
        <<<static_cast<unsigned>((runs + kThreads - 1) / kThreads), kThreads, 0, stream>>>(x, y, runs, slope);
    check_launch("activate");
    note_path(Path::activate_vectors);
  }
  const std::int64_t rest = count - runs * run;
  if (rest > 0) {
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((rest + kThreads - 1) / kThreads, 1 << 16));
    activate_elements_kernel<function><<<blocks, kThreads, 0, stream>>>(x + runs * run, y + runs * run, rest, slope);
    check_launch("activate");
    note_path(Path::activate_elements);
  }
}

template <typename T>
auto activate_of(Function function) {
  switch (function) {
    case Function::relu:
      return activate_as<Function::relu, T>;
    case Function::relu6:
      return activate_as<Function::relu6, T>;
    case Function::tanh:
      return activate_as<Function::tanh, T>;
    case Function::sigmoid:
      return activate_as<Function::sigmoid, T>;
    case Function::hard_sigmoid:
      return activate_as<Function::hard_sigmoid, T>;
    case Function::silu:
      return activate_as<Function::silu, T>;
    case Function::hard_swish:
      return activate_as<Function::hard_swish, T>;
    case Function::leaky_relu:
      return activate_as<Function::leaky_relu, T>;
    case Function::gelu:
      break;
  }
  return activate_as<Function::gelu, T>;
}

}  // namespace

void activate(const ActivateProblem& problem, const void* x, void* y, cudaStream_t stream) {
  with_type(problem.dtype, [&](auto zero) {
    activate_of<decltype(zero)>(problem.function)(x, y, problem.count, problem.slope, stream);
  });
}

}  // namespace gable::cuda
