// The wgmma kernels for f16.
#include "cuda/wgmma/kernel.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda {

const void* wgmma_kernel_f16(int pixels) {
  switch (pixels) {
    case 128:
      return reinterpret_cast<const void*>(wgmma::kernel<__half, wgmma::consume<__half, 128>>);
    case 192:
      return reinterpret_cast<const void*>(wgmma::kernel<__half, wgmma::consume<__half, 192>>);
    case 224:
      return reinterpret_cast<const void*>(wgmma::kernel<__half, wgmma::consume<__half, 224>>);
    case 256:
      return reinterpret_cast<const void*>(wgmma::kernel<__half, wgmma::consume<__half, 256>>);
    default:
      return nullptr;
  }
}

}  // namespace gable::cuda
