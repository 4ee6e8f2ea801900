// f32 values as sums of bf16 parts, each rounded to nearest from what the ones before leave: three hold all 24 bits.
#pragma once

#include <cuda_bf16.h>

namespace gable::cuda {

/// parts[i] is at most 2^-8i of v. Infinities have no parts: the second is NaN.
template <int count>
__host__ __device__ inline void cut(float v, __nv_bfloat16 (&parts)[count]) {
  for (int i = 0; i < count; ++i) {
    parts[i] = __float2bfloat16_rn(v);
    v -= __bfloat162float(parts[i]);
  }
}

}  // namespace gable::cuda
