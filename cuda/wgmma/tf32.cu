// The wgmma kernels for tf32.
#include "cuda/wgmma/kernel.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda {

const void* wgmma_kernel_tf32(int pixels) {
  switch (pixels) {
    case 128:
      return reinterpret_cast<const void*>(wgmma::kernel<ptx::Tf32, wgmma::consume<ptx::Tf32, 128>>);
    case 192:
      return reinterpret_cast<const void*>(wgmma::kernel<ptx::Tf32, wgmma::consume<ptx::Tf32, 192>>);
    case 224:
      return reinterpret_cast<const void*>(wgmma::kernel<ptx::Tf32, wgmma::consume<ptx::Tf32, 224>>);
    case 256:
      return reinterpret_cast<const void*>(wgmma::kernel<ptx::Tf32, wgmma::consume<ptx::Tf32, 256>>);
    default:
      return nullptr;
  }
}

}  // namespace gable::cuda
