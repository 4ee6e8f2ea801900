// The wgmma kernels for bf16.
#include "cuda/wgmma/instances.cuh"

namespace gable::cuda {

const void* wgmma_kernel_bf16(int pixels) { return wgmma::kernel_of<__nv_bfloat16>(pixels); }

}  // namespace gable::cuda
