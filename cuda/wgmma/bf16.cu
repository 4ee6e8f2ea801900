// The wgmma kernels for bf16.
#include "cuda/wgmma/kernel.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda {

const void* wgmma_kernel_bf16(int pixels) {
  switch (pixels) {
    case 128:
      return reinterpret_cast<const void*>(wgmma::kernel<__nv_bfloat16, wgmma::consume<__nv_bfloat16, 128>>);
    case 192:
      return reinterpret_cast<const void*>(wgmma::kernel<__nv_bfloat16, wgmma::consume<__nv_bfloat16, 192>>);
    case 224:
      return reinterpret_cast<const void*>(wgmma::kernel<__nv_bfloat16, wgmma::consume<__nv_bfloat16, 224>>);
    case 256:
      return reinterpret_cast<const void*>(wgmma::kernel<__nv_bfloat16, wgmma::consume<__nv_bfloat16, 256>>);
    default:
      return nullptr;
  }
}

}  // namespace gable::cuda
