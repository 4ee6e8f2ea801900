// The wgmma kernels of blocks with one item, for tf32.
#include "cuda/wgmma/item.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda {

const void* wgmma_item_kernel_tf32(int pixels, int consumers) {
  return wgmma::item_kernel_of<ptx::Tf32>(pixels, consumers);
}

}  // namespace gable::cuda
