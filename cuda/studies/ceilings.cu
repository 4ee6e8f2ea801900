// One block a multiprocessor, with warps enough to hide every latency: eight a scheduler for what one instruction does,
// four for the tensor cores, whose warps hold eight products in flight each.
#include "cuda/studies/ceilings.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "cuda/common/check.h"
#include "cuda/common/mma.cuh"
#include "cuda/studies/ceiling_loop.cuh"
#include "cuda/studies/ceilings_wgmma.h"

namespace gable::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kMmaThreads = 512;
constexpr int kUnrolled = 16;  // steps of each chain in one iteration
constexpr int kChains = 16;    // independent sums of a thread
constexpr int kTiles = 8;      // independent products of a warp: two operands a times four operands b
constexpr int kF64Tiles = 4;   // the same of f64, two times two
constexpr int kLoads = 32;     // of a thread in one iteration

template <typename T>
__global__ __launch_bounds__(kThreads) void fma_ceiling_kernel(int iterations, T scale, CeilingSink* sink) {
  T sums[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sums[i] = noise(threadIdx.x * kChains + i);
  const T shift = noise(threadIdx.x);
  const long long start = clock64();
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int step = 0; step < kUnrolled; ++step) {
#pragma unroll
      for (T& sum : sums) sum = fma(sum, scale, shift);
    }
  }
  T total = 0;
#pragma unroll
  for (const T sum : sums) total += sum;
  finish_loop(sink, start, static_cast<float>(total));
}

/// Exclusive or and addition take turns over pairs, which nothing simplifies.
__global__ __launch_bounds__(kThreads) void issue_ceiling_kernel(int iterations, float scale, CeilingSink* sink) {
  float sums[kChains / 2];
  unsigned words[kChains / 2];
#pragma unroll
  for (int i = 0; i < kChains / 2; ++i) {
    sums[i] = noise(threadIdx.x * kChains + i);
    words[i] = __float_as_uint(noise(i));
  }
  const float shift = noise(threadIdx.x);
  const long long start = clock64();
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int step = 0; step < kUnrolled; ++step) {
#pragma unroll
      for (int j = 0; j < kChains / 2; ++j) {
        sums[j] = fmaf(sums[j], scale, shift);
        const unsigned other = words[(j + 1) % (kChains / 2)];
        words[j] = step % 2 == 0 ? words[j] ^ other : words[j] + other;
      }
    }
  }
  float total = 0;
  unsigned mixed = 0;
#pragma unroll
  for (int i = 0; i < kChains / 2; ++i) {
    total += sums[i];
    mixed ^= words[i];
  }
  finish_loop(sink, start, mixed == 0x12345678u ? 0.0f : total);
}

/// sums += a · b, one product of 16×8×32 bytes.
__device__ __forceinline__ void multiply_add_bytes(int (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <typename T>
__global__ __launch_bounds__(kMmaThreads) void mma_ceiling_kernel(int iterations, CeilingSink* sink) {
  constexpr bool bf16 = std::is_same_v<T, __nv_bfloat16>;
  constexpr bool of_bytes = std::is_same_v<T, std::int8_t>;
  constexpr int bytes = static_cast<int>(sizeof(T));
  unsigned a[2][4];
  unsigned b[4][2];
  const unsigned first = (blockIdx.x * kMmaThreads + threadIdx.x) * 16;
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    a[i / 4][i % 4] = noise_word<bytes, bf16>(first + i);
    b[i / 2][i % 2] = noise_word<bytes, bf16>(first + 8 + i);
  }
  std::conditional_t<of_bytes, int, float> sums[kTiles][4] = {};
  const long long start = clock64();
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int step = 0; step < kUnrolled; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if constexpr (of_bytes) {
          multiply_add_bytes(sums[tile], a[tile / 4], b[tile % 4][0], b[tile % 4][1]);
        } else {
          multiply_add<T>(sums[tile], a[tile / 4], b[tile % 4][0], b[tile % 4][1]);
        }
      }
    }
  }
  float total = 0;
#pragma unroll
  for (const auto& tile : sums) total += static_cast<float>((tile[0] + tile[1]) + (tile[2] + tile[3]));
  finish_loop(sink, start, total);
}

/// sums += a · b, one product of 16×8×16 in f64. Hopper reaches its rate only with products of this size; sm_80 has
/// products of 8×8×4.
__device__ __forceinline__ void multiply_add_f64(double (&d)[4], const double (&a)[8], const double (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
        "d"(b[2]), "d"(b[3]));
#elif __CUDA_ARCH__ >= 800
#pragma unroll
  for (int depth = 0; depth < 4; ++depth) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(d[2 * half]), "+d"(d[2 * half + 1])
                   : "d"(a[2 * depth + half]), "d"(b[depth]));
    }
  }
#endif
}

__global__ __launch_bounds__(kMmaThreads) void mma_f64_ceiling_kernel(int iterations, CeilingSink* sink) {
  double a[2][8];
  double b[2][4];
  const unsigned first = (blockIdx.x * kMmaThreads + threadIdx.x) * 24;
#pragma unroll
  for (unsigned i = 0; i < 16; ++i) a[i / 8][i % 8] = noise(first + i);
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) b[i / 4][i % 4] = noise(first + 16 + i);
  double sums[kF64Tiles][4] = {};
  const long long start = clock64();
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int step = 0; step < kUnrolled; ++step) {
#pragma unroll
      for (int tile = 0; tile < kF64Tiles; ++tile) multiply_add_f64(sums[tile], a[tile / 2], b[tile % 2]);
    }
  }
  double total = 0;
#pragma unroll
  for (const auto& tile : sums) total += (tile[0] + tile[1]) + (tile[2] + tile[3]);
  finish_loop(sink, start, static_cast<float>(total));
}

__global__ __launch_bounds__(kThreads) void shared_ceiling_kernel(int iterations, CeilingSink* sink) {
  constexpr int vectors = 2 * kThreads;
  __shared__ float4 memory[vectors];
  for (int i = threadIdx.x; i < vectors; i += kThreads) memory[i] = make_float4(noise(i), noise(i + 1), 0.5f, 1.0f);
  __syncthreads();
  const auto here = static_cast<unsigned>(__cvta_generic_to_shared(memory + threadIdx.x));
  float sums[4] = {};
  const long long start = clock64();
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      float4 v;
      // volatile: loads of one address must not become one
      asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                   : "r"(here + load % 2 * kThreads * 16));
      sums[load % 4] += (v.x + v.y) + (v.z + v.w);
    }
  }
  finish_loop(sink, start, (sums[0] + sums[1]) + (sums[2] + sums[3]));
}

__global__ void noise_kernel(float* to, std::size_t count) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    to[i] = noise(static_cast<unsigned>(i));
}

__global__ void empty_kernel() {}

std::invalid_argument unknown_loop(CeilingLoop loop) {
  return std::invalid_argument("ceilings: " + std::to_string(static_cast<int>(loop)) + " is no loop");
}

/// Units that one block counts in one iteration.
double units_of_block(CeilingLoop loop) {
  constexpr int warps = kThreads / 32;
  switch (loop) {
    case CeilingLoop::fma_f32:
    case CeilingLoop::fma_f64:
      return 2.0 * kThreads * kChains * kUnrolled;
    case CeilingLoop::mma_f64:
      return 2.0 * 16 * 8 * 16 * kF64Tiles * kUnrolled * (kMmaThreads / 32);
    case CeilingLoop::mma_i8:
      return 2.0 * 16 * 8 * 32 * kTiles * kUnrolled * (kMmaThreads / 32);
    case CeilingLoop::mma_f16:
    case CeilingLoop::mma_bf16:
      return 2.0 * 16 * 8 * 16 * kTiles * kUnrolled * (kMmaThreads / 32);
    case CeilingLoop::mma_tf32:
      return 2.0 * 16 * 8 * 8 * kTiles * kUnrolled * (kMmaThreads / 32);
    case CeilingLoop::issue:
      return 1.0 * warps * kChains * kUnrolled;
    case CeilingLoop::shared_read:
      return 16.0 * kThreads * kLoads;
    case CeilingLoop::wgmma_f16:
    case CeilingLoop::wgmma_bf16:
    case CeilingLoop::wgmma_tf32:
    case CeilingLoop::wgmma_i8:
      return wgmma_loop_flop(loop);
  }
  throw unknown_loop(loop);
}

}  // namespace

bool has_ceiling_loop(CeilingLoop loop, const cudaDeviceProp& device) {
  switch (loop) {
    case CeilingLoop::mma_f16:
    case CeilingLoop::mma_bf16:
    case CeilingLoop::mma_tf32:
    case CeilingLoop::mma_f64:
    case CeilingLoop::mma_i8:
      return device.major >= 8;
    case CeilingLoop::wgmma_f16:
    case CeilingLoop::wgmma_bf16:
    case CeilingLoop::wgmma_tf32:
    case CeilingLoop::wgmma_i8:
      return device.major == 9 && device.minor == 0;
    case CeilingLoop::fma_f32:
    case CeilingLoop::fma_f64:
    case CeilingLoop::issue:
    case CeilingLoop::shared_read:
      return true;
  }
  throw unknown_loop(loop);
}

double ceiling_units(CeilingLoop loop, const cudaDeviceProp& device, int iterations) {
  return units_of_block(loop) * iterations * device.multiProcessorCount;
}

void run_ceiling_loop(CeilingLoop loop, const cudaDeviceProp& device, int iterations, CeilingSink* sink,
                      cudaStream_t stream) {
  if (!has_ceiling_loop(loop, device)) {
    throw std::invalid_argument("ceilings: loop " + std::to_string(static_cast<int>(loop)) + " on sm_" +
                                std::to_string(device.major) + std::to_string(device.minor) +
                                "; mma needs sm_80, wgmma sm_90");
  }
  constexpr float scale = 0.999f;
  const auto blocks = static_cast<unsigned>(device.multiProcessorCount);
  switch (loop) {
    case CeilingLoop::fma_f32:
      fma_ceiling_kernel<float><<<blocks, kThreads, 0, stream>>>(iterations, scale, sink);
      break;
    case CeilingLoop::fma_f64:
      fma_ceiling_kernel<double><<<blocks, kThreads, 0, stream>>>(iterations, scale, sink);
      break;
    case CeilingLoop::mma_f64:
      mma_f64_ceiling_kernel<<<blocks, kMmaThreads, 0, stream>>>(iterations, sink);
      break;
    case CeilingLoop::mma_i8:
      mma_ceiling_kernel<std::int8_t><<<blocks, kMmaThreads, 0, stream>>>(iterations, sink);
      break;
    case CeilingLoop::issue:
      issue_ceiling_kernel<<<blocks, kThreads, 0, stream>>>(iterations, scale, sink);
      break;
    case CeilingLoop::mma_f16:
      mma_ceiling_kernel<__half><<<blocks, kMmaThreads, 0, stream>>>(iterations, sink);
      break;
    case CeilingLoop::mma_bf16:
      mma_ceiling_kernel<__nv_bfloat16><<<blocks, kMmaThreads, 0, stream>>>(iterations, sink);
      break;
    case CeilingLoop::mma_tf32:
      mma_ceiling_kernel<float><<<blocks, kMmaThreads, 0, stream>>>(iterations, sink);
      break;
    case CeilingLoop::shared_read:
      shared_ceiling_kernel<<<blocks, kThreads, 0, stream>>>(iterations, sink);
      break;
    case CeilingLoop::wgmma_f16:
    case CeilingLoop::wgmma_bf16:
    case CeilingLoop::wgmma_tf32:
    case CeilingLoop::wgmma_i8:
      run_wgmma_loop(loop, blocks, iterations, sink, stream);
      break;
  }
  check_launch("a ceiling loop");
}

void fill_with_noise(float* to, std::size_t count, cudaStream_t stream) {
  noise_kernel<<<1024, kThreads, 0, stream>>>(to, count);
  check_launch("noise");
}

void run_empty_kernel(cudaStream_t stream) {
  empty_kernel<<<1, 32, 0, stream>>>();
  check_launch("an empty kernel");
}

}  // namespace gable::cuda
