// f32 values as sums of bf16 parts, each part the remainder of the previous ones rounded to nearest: three hold all 24
// bits.
#pragma once

#include <cuda_bf16.h>

#include "cuda/wgmma/bf16_parts.h"

namespace gable::cuda {

/// parts[i] is at most 2^-8i of v. Infinities have no parts: the second is NaN.
template <int count>
__host__ __device__ inline void cut(float v, __nv_bfloat16 (&parts)[count]) {
  for (int i = 0; i < count; ++i) {
    parts[i] = __float2bfloat16_rn(v);
    v -= __bfloat162float(parts[i]);
  }
}

#ifdef __CUDACC__

inline constexpr int kPartVector = 8;                           // values that a thread cuts: 32 bytes in, 16 a part out
inline constexpr int kPartSlots = kPartChannels / kPartVector;  // vectors of the channels that lie together

/// Loads vector `at` of rows of row_vectors vectors, with zeros past the last of `channels`.
__device__ inline void load_vector(const float* rows, std::int64_t at, int row_vectors, int channels,
                                   float (&v)[kPartVector]) {
  const std::int64_t row = at / row_vectors;
  const int channel = static_cast<int>(at - row * row_vectors) * kPartVector, left = channels - channel;
  const float* const from = rows + row * channels + channel;
  if (channels % 4 == 0 && left >= kPartVector) {
    const float4 low = __ldcs(reinterpret_cast<const float4*>(from));
    const float4 high = __ldcs(reinterpret_cast<const float4*>(from) + 1);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < kPartVector; ++i) v[i] = i < left ? from[i] : 0.0f;
}

template <int parts>
__device__ inline void store_parts(const float (&v)[kPartVector], uint4* to, std::int64_t at) {
  union {
    __nv_bfloat16 elements[kPartVector];
    uint4 vector;
  } out[parts];
#pragma unroll
  for (int i = 0; i < kPartVector; ++i) {
    __nv_bfloat16 cuts[parts];
    cut(v[i], cuts);
#pragma unroll
    for (int part = 0; part < parts; ++part) out[part].elements[i] = cuts[part];
  }
  uint4* const mine = to + at / kPartSlots * (kPartSlots * parts) + at % kPartSlots;
#pragma unroll
  for (int part = 0; part < parts; ++part) mine[part * kPartSlots] = out[part].vector;
}

#endif

}  // namespace gable::cuda
