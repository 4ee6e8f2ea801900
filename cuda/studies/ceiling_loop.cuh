// What every ceiling loop shares: operands that look random, since the tensor cores run faster on zeros, and the clock.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/studies/ceilings.h"

namespace gable::cuda {

__device__ __forceinline__ unsigned hash(unsigned seed) {
  unsigned x = seed * 0x9E3779B9u + 0x85EBCA6Bu;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

/// A value in [-1, 1).
__device__ __forceinline__ float noise(unsigned seed) {
  return static_cast<float>(static_cast<int>(hash(seed))) * (1.0f / 2147483648.0f);
}

/// A word of operands: one f32, two of 16 bits, or four bytes.
template <int element_bytes, bool bf16>
__device__ __forceinline__ unsigned noise_word(unsigned seed) {
  if constexpr (element_bytes == 1) {
    return hash(seed);
  } else if constexpr (element_bytes == 4) {
    return __float_as_uint(noise(seed));
  } else if constexpr (bf16) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(noise(2 * seed))) |
           static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(noise(2 * seed + 1)))) << 16;
  } else {
    return __half_as_ushort(__float2half_rn(noise(2 * seed))) |
           static_cast<unsigned>(__half_as_ushort(__float2half_rn(noise(2 * seed + 1)))) << 16;
  }
}

/// The first thread records how long its block took. The store for a value that no sum has keeps the compiler from
/// removing the sums.
__device__ __forceinline__ void finish_loop(CeilingSink* sink, long long start, float sum) {
  constexpr float never = -1.2345e30f;
  if (blockIdx.x == 0 && threadIdx.x == 0) sink->cycles = clock64() - start;
  if (sum == never) sink->value = sum;
}

}  // namespace gable::cuda
