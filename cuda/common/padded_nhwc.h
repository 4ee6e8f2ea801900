// Copies between NHWC tensors and ones with as many channels as tensor copies need: what the wgmma kernel reads and
// writes where the bytes of a pixel's channels are no multiple of 16. Costs one more read and write of the tensor.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gable::cuda {

/// `to` = rows of `from`, to_pitch elements from one to the next instead of from_pitch; zeros behind `count` elements.
/// element_bytes is 2 or 4. Device pointers, asynchronous on the stream.
void copy_rows(const void* from, void* to, std::int64_t rows, std::int64_t count, std::int64_t from_pitch,
               std::int64_t to_pitch, int element_bytes, cudaStream_t stream);

}  // namespace gable::cuda
