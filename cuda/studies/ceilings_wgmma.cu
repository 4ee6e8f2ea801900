// The tensor cores of Hopper at their best: two warpgroups a multiprocessor, each with sums of 64 x 256 in registers,
// take turns on operands in shared memory that never change. Of the 128 bytes a cycle that shared memory gives, the
// products read 80.
#include "cuda/studies/ceilings_wgmma.h"

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

template <typename T>
__global__ __launch_bounds__(kThreads, 1) void wgmma_ceiling_kernel(int iterations, CeilingSink* sink) {
  extern __shared__ unsigned char memory[];
  auto* const words =
      reinterpret_cast<unsigned*>(memory + (kAlignment - ptx::shared_address(memory) % kAlignment) % kAlignment);
  constexpr int bytes = std::is_same_v<T, ptx::Tf32> ? 4 : 2;
  for (unsigned i = threadIdx.x; i < kWords; i += kThreads)
    words[i] = noise_word<bytes, std::is_same_v<T, __nv_bfloat16>>(i + blockIdx.x * kWords);
  ptx::fence_shared_for_async();
  __syncthreads();
  const std::uint32_t base = ptx::shared_address(words);
  const std::uint32_t rows = base + threadIdx.x / 128 * kRows * kRowBytes;
  const std::uint64_t a = ptx::operand_descriptor(rows, kGroupPitch);
  const std::uint64_t b = ptx::operand_descriptor(base + kWarpgroups * kRows * kRowBytes, kGroupPitch);
  float sums[kColumns / 2] = {};
  const long long start = clock64();
  for (int i = 0; i < iterations; ++i) {
    ptx::fence_operands();
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
      const int step = product % 4 * 2;  // 32 bytes, in the descriptor's units of 16
      ptx::multiply<T, kColumns>(sums, a + step, b + step, 1);
    }
    ptx::commit_products();
    ptx::wait_products<0>();
  }
  ptx::fence_sums(sums);
  float sum = 0;
#pragma unroll
  for (const float one : sums) sum += one;
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
  const int depth = loop == CeilingLoop::wgmma_tf32 ? 8 : 16;
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
    default:
      throw std::invalid_argument("ceilings: " + std::to_string(static_cast<int>(loop)) + " is no wgmma loop");
  }
}

}  // namespace gable::cuda
