// pointwise_planes by wgmma for bf16.
#include "cuda/wgmma/planes_kernel.cuh"

namespace gable::cuda {

const void* wgmma_planes_kernel_bf16(int bytes, int slices, int chunks) {
  return wgmma::planes::kernel_of<__nv_bfloat16>(bytes, slices, chunks);
}

}  // namespace gable::cuda
