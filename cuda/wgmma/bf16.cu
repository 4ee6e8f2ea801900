// The wgmma kernels for bf16.
#include "cuda/wgmma/instances.cuh"

namespace gable::cuda {

const void* wgmma_kernel_bf16(int pixels, bool common_stages) {
  return common_stages ? wgmma::kernel_of<__nv_bfloat16, true>(pixels) : wgmma::kernel_of<__nv_bfloat16, false>(pixels);
}

}  // namespace gable::cuda
