// The kernels of kernel.cuh for one operand type, by the pixels of a tile. Each .cu instantiates one type, so that they
// compile in parallel.
#pragma once

#include "cuda/wgmma/consumer.cuh"
#include "cuda/wgmma/kernel.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda::wgmma {

/// The kernel for tiles of so many pixels. Where two blocks fit into a multiprocessor the next kernel's blocks get
/// ready while this one's end: each has 80 registers for 384 threads, 56 for a producer's and 88 for a consumer's.
template <typename T, int pixels, bool common>
const void* kernel_of_tile() {
  if constexpr (wgmma_needs_common_stages(pixels) && !common) {
    return nullptr;
  } else if constexpr (wgmma_resident_blocks(pixels) == 2) {
    return reinterpret_cast<const void*>(kernel<T, common, consume<T, pixels, common>, 2, 56, 88>);
  } else {
    return reinterpret_cast<const void*>(kernel<T, common, consume<T, pixels, common>>);
  }
}

/// Null if no kernel has this many pixels.
template <typename T, bool common>
const void* kernel_of(int pixels) {
  switch (pixels) {
    case 64:
      return kernel_of_tile<T, 64, common>();
    case 96:
      return kernel_of_tile<T, 96, common>();
    case 112:
      return kernel_of_tile<T, 112, common>();
    case 128:
      return kernel_of_tile<T, 128, common>();
    case 160:
      return kernel_of_tile<T, 160, common>();
    case 192:
      return kernel_of_tile<T, 192, common>();
    case 224:
      return kernel_of_tile<T, 224, common>();
    case 256:
      return kernel_of_tile<T, 256, common>();
    default:
      return nullptr;
  }
}

}  // namespace gable::cuda::wgmma
