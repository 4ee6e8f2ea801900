// pointwise_planes by wgmma (planes.h). A block has one tile: one or two consumer warpgroups of 64 output channels
// (planes_consumer.cuh), one warp or four that load pixels and one that loads weights (planes_loaders.cuh), and a ring
// of stages of 64 input channels. Each .cu instantiates one type, so that they compile in parallel.
#pragma once

#include "cuda/wgmma/planes_consumer.cuh"
#include "cuda/wgmma/planes_launch.h"
#include "cuda/wgmma/planes_loaders.cuh"

namespace gable::cuda::wgmma::planes {

template <typename T, int bytes, int slices, int chunks>
__global__ void __launch_bounds__(threads_of(slices, bytes), most_residents(slices, chunks, bytes))
    planes_kernel(const __grid_constant__ WgmmaPlanesArguments a) {
  extern __shared__ unsigned char shared[];
  const PlanesMemory<slices, chunks> m{(ptx::shared_address(shared) + 1023) & ~1023u};
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // uniform, as the compiler can see
  const int pixel_tile = divide(static_cast<int>(blockIdx.x), a.by_channel_tiles);
  const int channel_tile = static_cast<int>(blockIdx.x) - pixel_tile * static_cast<int>(a.by_channel_tiles.value);
  const PlanesTile tile{channel_tile * slices, pixel_tile * chunks};
  constexpr int kPixelWarp = 4 * slices, kWeightWarp = kPixelWarp + loading_warps(bytes);
  if (warp == kWeightWarp && threadIdx.x % 32 == 0) {
    for (int i = 0; i < a.stages; ++i) {
      ptx::init_barrier(m.full(i), 1 + loading_warps(bytes));
      ptx::init_barrier(m.empty(i), 4 * slices);
    }
    ptx::fence_barrier_init();
  }
  if (bytes == kTensor && warp == kPixelWarp && threadIdx.x % 32 == 0) ptx::prefetch_map(a.x);
  __syncthreads();
  ptx::allow_next_kernel();
  if (warp == kWeightWarp) {
    load_weights(a, m, tile);  // while the kernel before may still run: none writes packed weights
  } else if (warp >= kPixelWarp) {
    if constexpr (bytes == kTensor) {
      load_boxes(a, m, tile);
    } else if constexpr (bytes == 2) {
      SingleLoader<slices, chunks>(a, m, tile).run();
    } else {
      CopyingLoader<bytes, slices, chunks>(a, m, tile).run();
    }
  } else {
    consume<T, bytes>(a, m, tile, warp / 4);
  }
}

template <typename T, int bytes>
const void* kernel_of(int slices, int chunks) {
  if (slices == 1) {
    return chunks == 1 ? reinterpret_cast<const void*>(planes_kernel<T, bytes, 1, 1>)
                       : reinterpret_cast<const void*>(planes_kernel<T, bytes, 1, 2>);
  }
  return chunks == 1 ? reinterpret_cast<const void*>(planes_kernel<T, bytes, 2, 1>)
                     : reinterpret_cast<const void*>(planes_kernel<T, bytes, 2, 2>);
}

template <typename T>
const void* kernel_of(int bytes, int slices, int chunks) {
  if (bytes == kTensor) return kernel_of<T, kTensor>(slices, chunks);
  if (bytes == 2) return kernel_of<T, 2>(slices, chunks);
  return bytes == 8 ? kernel_of<T, 8>(slices, chunks) : kernel_of<T, 4>(slices, chunks);
}

}  // namespace gable::cuda::wgmma::planes
