// The wgmma kernels of blocks with one item, for f16.
#include "cuda/wgmma/item.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda {

const void* wgmma_item_kernel_f16(int pixels, int consumers) {
  return wgmma::item_kernel_of<__half>(pixels, consumers);
}

}  // namespace gable::cuda
