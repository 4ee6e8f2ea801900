// Tiles of 8x16 sums a thread of register_tile.h.
#include "cuda/gemm/register_tile.cuh"

namespace gable::cuda::register_tile {

template <typename Tile>
Kernel wide_kernel(Gather gather) {
  switch (gather) {
    case Gather::stages:
      return compiled<Tile, Gather::stages>();
    case Gather::one_tap:
      return compiled<Tile, Gather::one_tap>();
    case Gather::chunks:
      return compiled<Tile, Gather::chunks>();
    default:
      return compiled<Tile, Gather::elements>();
  }
}
template Kernel wide_kernel<Large>(Gather gather);
template Kernel wide_kernel<Wide>(Gather gather);

}  // namespace gable::cuda::register_tile
