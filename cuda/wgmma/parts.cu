// The wgmma kernels for f32 cut into bf16 parts (split3, split6).
#include "cuda/wgmma/launch.h"
#include "cuda/wgmma/promoted.cuh"

namespace gable::cuda {

const void* wgmma_kernel_parts(int pixels) {
  using wgmma::Parts;
  switch (pixels) {
    case 128:
      return reinterpret_cast<const void*>(wgmma::kernel<Parts, wgmma::consume<Parts, 128>>);
    case 192:
      return reinterpret_cast<const void*>(wgmma::kernel<Parts, wgmma::consume<Parts, 192>>);
    case 224:
      return reinterpret_cast<const void*>(wgmma::kernel<Parts, wgmma::consume<Parts, 224>>);
    case 256:
      return reinterpret_cast<const void*>(wgmma::kernel<Parts, wgmma::consume<Parts, 256>>);
    default:
      return nullptr;
  }
}

const void* wgmma_kernel_promoted(int pixels) {
  constexpr int kHalf = kWgmmaPromotedPixels / 2;
  if (pixels != kWgmmaPromotedPixels) return nullptr;
  return reinterpret_cast<const void*>(
      wgmma::kernel<wgmma::Parts, wgmma::consume_promoted<wgmma::Parts, kHalf>, 40, 232>);
}

}  // namespace gable::cuda
