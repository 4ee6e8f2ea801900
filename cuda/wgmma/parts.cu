// The wgmma kernels for f32 cut into bf16 parts (split3, split6).
#include "cuda/wgmma/instances.cuh"
#include "cuda/wgmma/promoted.cuh"

namespace gable::cuda {

const void* wgmma_kernel_parts(int pixels) { return wgmma::kernel_of<wgmma::Parts, false>(pixels); }

const void* wgmma_kernel_promoted(int pixels) {
  constexpr int kHalf = kWgmmaPromotedPixels / 2;
  if (pixels != kWgmmaPromotedPixels) return nullptr;
  return reinterpret_cast<const void*>(
      wgmma::kernel<wgmma::Parts, false, wgmma::consume_promoted<wgmma::Parts, kHalf>, 1, 40, 232>);
}

}  // namespace gable::cuda
