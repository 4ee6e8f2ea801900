// The wgmma kernels of blocks with one item, for bf16.
#include "cuda/wgmma/item.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda {

const void* wgmma_item_kernel_bf16(int pixels, int consumers) {
  return wgmma::item_kernel_of<__nv_bfloat16>(pixels, consumers);
}

}  // namespace gable::cuda
