// Wide tiles of register_tile.h.
#include "cuda/gemm/register_tile.cuh"

namespace gable::cuda::register_tile {

Kernel wide_kernel(Gather gather) {
  switch (gather) {
    case Gather::stages:
      return compiled<Wide, Gather::stages>();
    case Gather::chunks:
      return compiled<Wide, Gather::chunks>();
    default:
      return compiled<Wide, Gather::elements>();
  }
}

}  // namespace gable::cuda::register_tile
