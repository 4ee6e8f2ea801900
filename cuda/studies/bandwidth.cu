// Four accesses of 16 bytes a thread are in flight at a time. The sum of the values goes to the sink if it has a value
// that random data cannot give, so the compiler removes no load.
#include "cuda/studies/bandwidth.h"

#include <stdexcept>

#include "cuda/common/check.h"

namespace gable::cuda {
namespace {

constexpr int kInFlight = 4;
constexpr int kMaxThreads = 1024;
constexpr float kNever = -1.2345e30f;

struct Loop {
  std::int64_t vectors;  // of 16 bytes, a block
  int passes;
};

__device__ __forceinline__ float sum_of(const float4& v) { return (v.x + v.y) + (v.z + v.w); }

/// Calls body(index of kInFlight vectors of this thread), over the block's part.
template <typename Body>
__device__ __forceinline__ void sweep(const Loop& loop, const Body& body) {
  const std::int64_t first = std::int64_t{blockIdx.x} * loop.vectors + threadIdx.x;
  for (int pass = 0; pass < loop.passes; ++pass)
    for (std::int64_t i = 0; i < loop.vectors; i += std::int64_t{kInFlight} * blockDim.x) body(first + i);
}

template <bool past_l1>
__global__ __launch_bounds__(kMaxThreads) void memory_read_kernel(Loop loop, const float4* a, float* sink) {
  float sum = 0;
  sweep(loop, [&](std::int64_t at) {
    float4 v[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      // volatile: passes over one part must not become one
      const float4* const from = a + at + std::int64_t{i} * blockDim.x;
      if constexpr (past_l1) {
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v[i].x), "=f"(v[i].y), "=f"(v[i].z), "=f"(v[i].w)
                     : "l"(from));
      } else {
        asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v[i].x), "=f"(v[i].y), "=f"(v[i].z), "=f"(v[i].w)
                     : "l"(from));
      }
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum += sum_of(v[i]);
  });
  if (sum == kNever) *sink = sum;
}

__global__ __launch_bounds__(kMaxThreads) void memory_copy_kernel(Loop loop, const float4* a, float4* c) {
  sweep(loop, [&](std::int64_t at) {
    float4 v[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) v[i] = a[at + std::int64_t{i} * blockDim.x];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) c[at + std::int64_t{i} * blockDim.x] = v[i];
  });
}

__global__ __launch_bounds__(kMaxThreads) void memory_triad_kernel(Loop loop, const float4* a, const float4* b,
                                                                   float4* c) {
  constexpr float scale = 3.0f;
  sweep(loop, [&](std::int64_t at) {
    float4 x[kInFlight];
    float4 y[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      x[i] = a[at + std::int64_t{i} * blockDim.x];
      y[i] = b[at + std::int64_t{i} * blockDim.x];
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i)
      c[at + std::int64_t{i} * blockDim.x] = {fmaf(scale, y[i].x, x[i].x), fmaf(scale, y[i].y, x[i].y),
                                              fmaf(scale, y[i].z, x[i].z), fmaf(scale, y[i].w, x[i].w)};
  });
}

/// Two halves of shared memory alternate: no copy overwrites one in flight.
__global__ __launch_bounds__(kMaxThreads) void memory_to_shared_kernel(Loop loop, const float4* a, float* sink) {
  extern __shared__ float4 landing[];
  int half = 0;
  sweep(loop, [&](std::int64_t at) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (i == kInFlight / 2) half ^= 1;
      const float4* const from = a + at + std::int64_t{i} * blockDim.x;
      float4* const to = landing + (half * (kInFlight / 2) + i % (kInFlight / 2)) * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 800
      if (i % (kInFlight / 2) == 0) asm volatile("cp.async.wait_group 1;" ::: "memory");
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
          "l"(from)
          : "memory");
      if (i % (kInFlight / 2) == kInFlight / 2 - 1) asm volatile("cp.async.commit_group;" ::: "memory");
#else
      *to = *from;
#endif
    }
    half ^= 1;
  });
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  const float sum = sum_of(landing[threadIdx.x]);
  if (sum == kNever) *sink = sum;
}

void check_sweep(const MemorySweep& s) {
  const bool threads = s.threads > 0 && s.threads <= kMaxThreads && s.threads % 32 == 0;
  const std::int64_t round = std::int64_t{16} * kInFlight * s.threads;
  if (threads && s.block_bytes > 0 && s.block_bytes % round == 0 && s.blocks > 0 && s.passes > 0) return;
  throw std::invalid_argument("bandwidth: " + std::to_string(s.passes) + " passes of " + std::to_string(s.blocks) +
                              " blocks of " + std::to_string(s.threads) + " threads over " +
                              std::to_string(s.block_bytes) + " bytes; threads are a multiple of 32 up to " +
                              std::to_string(kMaxThreads) + ", bytes a multiple of 64 a thread");
}

}  // namespace

std::int64_t bytes_moved(MemoryLoop loop, const MemorySweep& s) {
  const std::int64_t arrays = loop == MemoryLoop::triad ? 3 : loop == MemoryLoop::copy ? 2 : 1;
  return arrays * s.block_bytes * s.blocks * s.passes;
}

void run_memory_loop(MemoryLoop loop, const MemorySweep& s, const void* a, const void* b, void* c, float* sink,
                     cudaStream_t stream) {
  check_sweep(s);
  const Loop l{.vectors = s.block_bytes / 16, .passes = s.passes};
  const auto* x = static_cast<const float4*>(a);
  const auto* y = static_cast<const float4*>(b);
  auto* z = static_cast<float4*>(c);
  const auto blocks = static_cast<unsigned>(s.blocks);
  const auto threads = static_cast<unsigned>(s.threads);
  switch (loop) {
    case MemoryLoop::read:
      memory_read_kernel<false><<<blocks, threads, 0, stream>>>(l, x, sink);
      break;
    case MemoryLoop::read_past_l1:
      memory_read_kernel<true><<<blocks, threads, 0, stream>>>(l, x, sink);
      break;
    case MemoryLoop::copy:
      memory_copy_kernel<<<blocks, threads, 0, stream>>>(l, x, z);
      break;
    case MemoryLoop::triad:
      memory_triad_kernel<<<blocks, threads, 0, stream>>>(l, x, y, z);
      break;
    case MemoryLoop::to_shared: {
      const int bytes = kInFlight * 16 * s.threads;
      GABLE_CUDA_CHECK(
          cudaFuncSetAttribute(memory_to_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
      memory_to_shared_kernel<<<blocks, threads, static_cast<unsigned>(bytes), stream>>>(l, x, sink);
      break;
    }
    default:
      throw std::invalid_argument("bandwidth: " + std::to_string(static_cast<int>(loop)) + " is no loop");
  }
  check_launch("bandwidth");
}

}  // namespace gable::cuda
