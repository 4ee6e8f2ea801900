// The wgmma kernels by operand type, for cudaLaunchKernelExC. Null if no kernel has this many pixels.
#pragma once

namespace gable::cuda {

const void* wgmma_kernel_f16(int pixels);
const void* wgmma_kernel_bf16(int pixels);
const void* wgmma_kernel_tf32(int pixels);
/// f32 cut into bf16 parts, all products summed by the matrix unit.
const void* wgmma_kernel_parts(int pixels);
/// f32 cut into bf16 parts; the matrix unit sums short chunks, which are added in registers.
const void* wgmma_kernel_promoted(int pixels);

}  // namespace gable::cuda
