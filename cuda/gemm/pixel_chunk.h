// How the channels of a pixel are cut into the steps of kernels that multiply by pixel_chunk.cuh. For host and device.
#pragma once

namespace gable::cuda {

constexpr int kChunkBytes = 64;  // of a pixel's channels that a step multiplies: four lanes with 16 bytes each

/// Bytes between rows of weights in shared memory: an odd multiple of 64, so that two rows and four lanes of 16 bytes
/// meet in no bank.
template <typename Count>
constexpr Count chunk_pitch(Count chunks) {
  return (chunks | 1) * kChunkBytes;
}

}  // namespace gable::cuda
