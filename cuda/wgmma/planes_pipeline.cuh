// Shared memory of pointwise_planes by wgmma: barriers, then a ring of stages of weights and pixels. Outputs take the
// place of stages.
#pragma once

#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/planes_arguments.h"

namespace gable::cuda::wgmma::planes {

/// Where a byte of a row of 128 bytes lies, with the swizzle of tensor copies.
__device__ inline int swizzled(int row, int byte) {
  return row * kRowBytes + ((byte / 16) ^ (row % 8)) * 16 + byte % 16;
}

/// Shared memory: barriers, then stages of weights and pixels.
template <int slices, int chunks>
struct PlanesMemory {
  static constexpr int kStageBytes = slices * kWgmmaWeightBytes + chunks * kChunkBytes;
  std::uint32_t base;

  __device__ std::uint32_t full(int i) const { return base + 8 * i; }
  __device__ std::uint32_t empty(int i) const { return base + 8 * (kMaxStages + i); }
  __device__ std::uint32_t weights(int i) const { return base + kWgmmaBarrierBytes + i * kStageBytes; }
  __device__ std::uint32_t pixels(int i) const { return weights(i) + slices * kWgmmaWeightBytes; }
  __device__ std::uint32_t outputs(int slice, int chunk) const {
    return weights(0) + (slice * chunks + chunk) * kChunkBytes;
  }
};

/// The first slice of a block's tile and its first chunk of pixels, counted through the batch.
struct PlanesTile {
  int slice, chunk;
};

struct ChunkPlace {
  int image, pixel;
};
__device__ inline ChunkPlace place_of_chunk(const WgmmaPlanesArguments& a, int chunk) {
  const int image = divide(chunk, a.by_chunks_per_image);
  return {image, (chunk - image * a.chunks_per_image) * kPixels};
}

/// A thread's copies of `bytes` to the rows of a chunk: it keeps its pixels and steps from row to row.
template <int bytes>
struct RowShare {
  static constexpr int kLanes = kRowBytes / bytes, kStep = kWarpgroup / kLanes;

  __device__ static int byte() { return static_cast<int>(threadIdx.x) % kLanes * bytes; }
  /// Of a warpgroup's threads, numbered from `thread`.
  __device__ static int row(int thread) { return thread / kLanes; }
};

}  // namespace gable::cuda::wgmma::planes
