// Operands of mma.sync that come from memory to registers without a stage in shared memory. The order of the terms of a
// sum is free: a lane's operands of two products are 16 neighbouring bytes of a pixel's channels, and of a row of
// weights.
#pragma once

#include <gable/problem.h>

#include "cuda/common/mma.cuh"
#include "cuda/common/vector_access.cuh"
#include "cuda/gemm/pixel_chunk.h"

namespace gable::cuda {

/// 16 bytes from `from` in accesses of `bytes`, with zeros past the first `valid` elements. Past L1, where lines may be
/// older than the kernel before.
template <int bytes, typename T>
__device__ __forceinline__ uint4 load_pieces(const T* from, int valid) {
  constexpr int kElements = bytes / static_cast<int>(sizeof(T));
  using Access = typename AccessOf<bytes>::Type;
  union {
    uint4 vector;
    Access pieces[16 / bytes];
  } v;
  v.vector = make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < 16 / bytes; ++i) {
    if (i * kElements < valid) v.pieces[i] = __ldcg(reinterpret_cast<const Access*>(from) + i);
  }
  return v.vector;
}

template <typename T>
__device__ __forceinline__ unsigned operand(unsigned word) {
  if constexpr (sizeof(T) == 4) return __float_as_uint(round_to_tf32(__uint_as_float(word)));
  return word;
}

/// A's operands of a chunk's two products, from the 16 bytes of rows lane / 4 and lane / 4 + 8.
template <typename T>
__device__ __forceinline__ void row_operands(const uint4& low, const uint4& high, unsigned (&a)[2][4]) {
  a[0][0] = operand<T>(low.x), a[0][1] = operand<T>(high.x);
  a[0][2] = operand<T>(low.y), a[0][3] = operand<T>(high.y);
  a[1][0] = operand<T>(low.z), a[1][1] = operand<T>(high.z);
  a[1][2] = operand<T>(low.w), a[1][3] = operand<T>(high.w);
}

}  // namespace gable::cuda
