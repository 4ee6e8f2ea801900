// The kernels of kernel.cuh for one operand type, by the pixels of a tile. Each .cu instantiates one type, so that they
// compile in parallel.
#pragma once

#include "cuda/wgmma/consumer.cuh"
#include "cuda/wgmma/kernel.cuh"
#include "cuda/wgmma/launch.h"

namespace gable::cuda::wgmma {

/// Null if no kernel has this many pixels.
template <typename T>
const void* kernel_of(int pixels) {
  switch (pixels) {
    case 64:
      return reinterpret_cast<const void*>(kernel<T, consume<T, 64>>);
    case 128:
      return reinterpret_cast<const void*>(kernel<T, consume<T, 128>>);
    case 192:
      return reinterpret_cast<const void*>(kernel<T, consume<T, 192>>);
    case 224:
      return reinterpret_cast<const void*>(kernel<T, consume<T, 224>>);
    case 256:
      return reinterpret_cast<const void*>(kernel<T, consume<T, 256>>);
    default:
      return nullptr;
  }
}

}  // namespace gable::cuda::wgmma
