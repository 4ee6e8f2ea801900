// NCHW to NHWC and back. With many channels that is a transpose of [channels][pixels] an image; with few, a strip of
// pixels goes through shared memory, so that both sides are still read and written in whole lines.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gable::cuda {

/// `pixels` is height times width, element_bytes 2 or 4. Asynchronous on `stream`.
void nchw_to_nhwc(const void* x, void* y, std::int64_t n, std::int64_t channels, std::int64_t pixels, int element_bytes,
                  cudaStream_t stream);
void nhwc_to_nchw(const void* x, void* y, std::int64_t n, std::int64_t channels, std::int64_t pixels, int element_bytes,
                  cudaStream_t stream);

/// Planes, and pixels whose channels lie `pitch` elements apart, a multiple of 16 bytes. Elements behind a pixel's
/// channels are written as zeros and not read.
struct PaddedReorder {
  std::int64_t n, channels, pixels, pitch;
  int element_bytes;
};
void nchw_to_padded_nhwc(const void* x, void* y, const PaddedReorder& reorder, cudaStream_t stream);
void padded_nhwc_to_nchw(const void* x, void* y, const PaddedReorder& reorder, cudaStream_t stream);

}  // namespace gable::cuda
