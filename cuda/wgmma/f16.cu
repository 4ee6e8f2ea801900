// The wgmma kernels for f16.
#include "cuda/wgmma/instances.cuh"

namespace gable::cuda {

const void* wgmma_kernel_f16(int pixels, bool common_stages) {
  return common_stages ? wgmma::kernel_of<__half, true>(pixels) : wgmma::kernel_of<__half, false>(pixels);
}

}  // namespace gable::cuda
