// The wgmma kernels for f16.
#include "cuda/wgmma/instances.cuh"

namespace gable::cuda {

const void* wgmma_kernel_f16(int pixels) { return wgmma::kernel_of<__half>(pixels); }

}  // namespace gable::cuda
