// The wgmma kernels for tf32.
#include "cuda/wgmma/instances.cuh"

namespace gable::cuda {

const void* wgmma_kernel_tf32(int pixels, bool common_stages) {
  return common_stages ? wgmma::kernel_of<ptx::Tf32, true>(pixels) : wgmma::kernel_of<ptx::Tf32, false>(pixels);
}

}  // namespace gable::cuda
