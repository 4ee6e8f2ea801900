// pointwise_planes by wgmma for f16.
#include "cuda/wgmma/planes_kernel.cuh"

namespace gable::cuda {

const void* wgmma_planes_kernel_f16(int bytes, int slices, int chunks) {
  return wgmma::planes::kernel_of<__half>(bytes, slices, chunks);
}

}  // namespace gable::cuda
