// The kernels of wgmma_kernel.cuh by data type: each .cu instantiates one, so that they compile side by side.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/wgmma_geometry.h"

namespace gable::cuda {

/// f32 stands for tf32 arithmetic. Null if no kernel has this many pixels.
const void* wgmma_kernel_f16(int pixels);
const void* wgmma_kernel_bf16(int pixels);
const void* wgmma_kernel_tf32(int pixels);

}  // namespace gable::cuda
