// Copies between a tensor as the caller lays it out and NHWC with as many channels as tensor copies need: what the
// wgmma kernel reads and writes where the caller's channels come first, or their bytes are no multiple of 16.
//
// Costs one more read and write of the tensor (and, in between, L2 holds what fits).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gable::cuda {

struct ChannelsShape {
  std::int64_t n = 1, c = 1, padded_c = 1, pixels = 1;
  bool nhwc = true;  ///< of the caller's tensor: (n, pixels, c), else (n, c, pixels)
  int element_bytes = 2;
};

/// out (n, pixels, padded_c) = x, zeros behind channel c. `out` is aligned to 16 bytes.
void to_padded_nhwc(const ChannelsShape& shape, const void* x, void* out, cudaStream_t stream);

/// y = in (n, pixels, padded_c) without its padding.
void from_padded_nhwc(const ChannelsShape& shape, const void* in, void* y, cudaStream_t stream);

}  // namespace gable::cuda
