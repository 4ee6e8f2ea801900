// The tensor cores of Hopper at their best: two warpgroups a multiprocessor, each with sums of 64 x 256 in registers,
// take turns on operands in shared memory that never change. Of the 128 bytes a cycle that shared memory gives, the
// products read 80.
#include "cuda/studies/ceilings_wgmma.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "cuda/common/check.h"
#include "cuda/studies/ceiling_loop.cuh"
#include "cuda/wgmma/ptx.cuh"

namespace gable::cuda {
namespace {

constexpr int kWarpgroups = 2;
constexpr int kThreads = kWarpgroups * 128;
constexpr int kRows = 64, kColumns = 256;
constexpr int kRowBytes = 128;              // of the reduction dimension, in four products
constexpr int kProducts = 16;               // between two waits
constexpr int kGroupPitch = 8 * kRowBytes;  // eight rows follow one another
constexpr int kWords = (kWarpgroups * kRows + kColumns) * kRowBytes / 4;
constexpr int kAlignment = 1024;  // of the swizzle's pattern
constexpr int kSharedBytes = kWords * 4 + kAlignment;

// The product of bytes: the same registers and operands, but sums of 32-bit integers.
#define GABLE_I4(i) "+r"(d[i]), "+r"(d[(i) + 1]), "+r"(d[(i) + 2]), "+r"(d[(i) + 3])
#define GABLE_I16(i) GABLE_I4(i), GABLE_I4((i) + 4), GABLE_I4((i) + 8), GABLE_I4((i) + 12)
__device__ inline void multiply_bytes(int (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" GABLE_NAMES_OF_256 "}, %128, %129, 1;"
               : GABLE_I16(0), GABLE_I16(16), GABLE_I16(32), GABLE_I16(48), GABLE_I16(64), GABLE_I16(80), GABLE_I16(96),
                 GABLE_I16(112)
               : "l"(a), "l"(b));
}
#undef GABLE_I16
#undef GABLE_I4

template <int count>
__device__ inline void fence_sums(int (&sums)[count]) {
#pragma unroll
  for (int& sum : sums) asm volatile("" : "+r"(sum)::"memory");
}
using ptx::fence_sums;

template <typename T>
__global__ __launch_bounds__(kThreads, 1) void wgmma_ceiling_kernel(int iterations, CeilingSink* sink) {
  extern __shared__ unsigned char memory[];
  auto* const words =
      reinterpret_cast<unsigned*>(memory + (kAlignment - ptx::shared_address(memory) % kAlignment) % kAlignment);
  constexpr bool of_bytes = std::is_same_v<T, std::int8_t>;
  constexpr int bytes = of_bytes ? 1 : std::is_same_v<T, ptx::Tf32> ? 4 : 2;
  for (unsigned i = threadIdx.x; i < kWords; i += kThreads)
    words[i] = noise_word<bytes, std::is_same_v<T, __nv_bfloat16>>(i + blockIdx.x * kWords);
  ptx::fence_shared_for_async();
  __syncthreads();
  const std::uint32_t base = ptx::shared_address(words);
  const std::uint32_t rows = base + threadIdx.x / 128 * kRows * kRowBytes;
  const std::uint64_t a = ptx::operand_descriptor(rows, kGroupPitch);
  const std::uint64_t b = ptx::operand_descriptor(base + kWarpgroups * kRows * kRowBytes, kGroupPitch);
  std::conditional_t<of_bytes, int, float> sums[kColumns / 2] = {};
  const long long start = clock64();
  for (int i = 0; i < iterations; ++i) {
    ptx::fence_operands();
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
      const int step = product % 4 * 2;  // 32 bytes, in the descriptor's units of 16
      if constexpr (of_bytes) {
        multiply_bytes(sums, a + step, b + step);
      } else {
        ptx::multiply<T, kColumns>(sums, a + step, b + step, 1);
      }
    }
    ptx::commit_products();
    ptx::wait_products<0>();
  }
  fence_sums(sums);
  float sum = 0;
#pragma unroll
  for (const auto one : sums) sum += static_cast<float>(one);
  finish_loop(sink, start, sum);
}

template <typename T>
void launch(unsigned blocks, int iterations, CeilingSink* sink, cudaStream_t stream) {
  GABLE_CUDA_CHECK(
      cudaFuncSetAttribute(wgmma_ceiling_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  wgmma_ceiling_kernel<T><<<blocks, kThreads, kSharedBytes, stream>>>(iterations, sink);
}

}  // namespace

double wgmma_loop_flop(CeilingLoop loop) {
  const int depth = loop == CeilingLoop::wgmma_tf32 ? 8 : loop == CeilingLoop::wgmma_i8 ? 32 : 16;
  return 2.0 * kRows * kColumns * depth * kProducts * kWarpgroups;
}

void run_wgmma_loop(CeilingLoop loop, unsigned blocks, int iterations, CeilingSink* sink, cudaStream_t stream) {
  switch (loop) {
    case CeilingLoop::wgmma_f16:
      return launch<__half>(blocks, iterations, sink, stream);
    case CeilingLoop::wgmma_bf16:
      return launch<__nv_bfloat16>(blocks, iterations, sink, stream);
    case CeilingLoop::wgmma_tf32:
      return launch<ptx::Tf32>(blocks, iterations, sink, stream);
    case CeilingLoop::wgmma_i8:
      return launch<std::int8_t>(blocks, iterations, sink, stream);
    default:
      throw std::invalid_argument("ceilings: " + std::to_string(static_cast<int>(loop)) + " is no wgmma loop");
  }
}

}  // namespace gable::cuda
