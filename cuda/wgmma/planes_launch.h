// The kernels of pointwise_planes by wgmma by operand type, for cudaLaunchKernelExC.
#pragma once

namespace gable::cuda {

/// `bytes` is the width of an access, 16 by tensor copies; slices and chunks are 1 or 2.
const void* wgmma_planes_kernel_f16(int bytes, int slices, int chunks);
const void* wgmma_planes_kernel_bf16(int bytes, int slices, int chunks);

}  // namespace gable::cuda
