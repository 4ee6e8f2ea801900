// The wgmma kernels for tf32.
#include "cuda/wgmma/instances.cuh"

namespace gable::cuda {

const void* wgmma_kernel_tf32(int pixels) { return wgmma::kernel_of<ptx::Tf32>(pixels); }

}  // namespace gable::cuda
