// The kernels of wgmma_kernel.cuh by data type: each .cu instantiates one, so that they compile side by side.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/wgmma/geometry.h"

namespace gable::cuda {

/// Null if no kernel has this many pixels.
const void* wgmma_kernel_f16(int pixels);
const void* wgmma_kernel_bf16(int pixels);
const void* wgmma_kernel_tf32(int pixels);
/// f32 in bf16 parts of which the matrix unit makes the whole sums, and short chunks of them.
const void* wgmma_kernel_parts(int pixels);
const void* wgmma_kernel_promoted(int pixels);

}  // namespace gable::cuda
