// The wgmma kernels by operand type, for cudaLaunchKernelExC. Null if no kernel has this many pixels. Where boxes and
// weights have common stages (WgmmaPipeline), the kernel is another one.
#pragma once

namespace gable::cuda {

const void* wgmma_kernel_f16(int pixels, bool common_stages);
const void* wgmma_kernel_bf16(int pixels, bool common_stages);
const void* wgmma_kernel_tf32(int pixels, bool common_stages);
/// Blocks with one item each, of one or two consumers (WgmmaGrid::one_item).
const void* wgmma_item_kernel_f16(int pixels, int consumers);
const void* wgmma_item_kernel_bf16(int pixels, int consumers);
const void* wgmma_item_kernel_tf32(int pixels, int consumers);
/// f32 cut into bf16 parts, all products summed by the matrix unit.
const void* wgmma_kernel_parts(int pixels);
/// f32 cut into bf16 parts; the matrix unit sums short chunks, which are added in registers.
const void* wgmma_kernel_promoted(int pixels);

}  // namespace gable::cuda
