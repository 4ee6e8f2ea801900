// What one launch of pointwise_planes by wgmma takes, on host and device: the plan's part, made once, and the call's
// addresses. A block's tile is 1 or 2 slices of output channels by 1 or 2 chunks of pixels.
#pragma once

#include <cuda.h>

#include <gable/problem.h>
#include "cuda/common/halo_tile.h"
#include "cuda/wgmma/arguments.h"

namespace gable::cuda::wgmma::planes {

constexpr int kPixels = 64, kChannels = 64;         // of a chunk, and of a slice or a stage
constexpr int kRowBytes = 2 * kPixels;              // of a channel's pixels
constexpr int kChunkBytes = kChannels * kRowBytes;  // of pixels in a stage, and of staged outputs
constexpr int kMaxStages = 12;
constexpr int kTensor = 16;  // bytes of an access: tensor copies

struct WgmmaPlanesArguments {
  CUtensorMap x, y;  // for tensor copies
  const unsigned char *from, *weights;
  unsigned char* to;
  const float* bias;  // or null
  int stages, steps;
  int n, c, k, plane, chunks_per_image;
  Divisor by_channel_tiles, by_chunks_per_image;
  Activation activation;
};

/// Warps that load pixels.
constexpr int loading_warps(int bytes) { return bytes == kTensor ? 1 : 4; }
constexpr int threads_of(int slices, int bytes) { return slices * kWarpgroup + (1 + loading_warps(bytes)) * 32; }
/// Two blocks of a multiprocessor need registers for the sums of both.
constexpr int most_residents(int slices, int chunks, int bytes) {
  return bytes == kTensor || slices * chunks < (bytes == 2 ? 2 : 4) ? 2 : 1;
}

}  // namespace gable::cuda::wgmma::planes
