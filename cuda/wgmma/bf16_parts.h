// Cuts f32 tensors into bf16 parts whose products tensor cores can multiply: what the wgmma kernel reads for split3 and
// split6. One pass, bound by memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace gable::cuda {

inline constexpr std::int64_t kPartChannels = 64;  ///< of one part that lie together

/// Bytes that cut_rows() writes.
std::size_t cut_bytes(std::int64_t rows, std::int64_t channels, int parts);

/// Writes [row][block of 64 channels][part][channel], with zeros past the last channel. `from` is aligned to 4 bytes,
/// or to 16 where channels are a multiple of 4; `to` to 16. `parts` is 2 or 3. Device pointers, asynchronous on the
/// stream.
void cut_rows(const float* from, void* to, std::int64_t rows, std::int64_t channels, int parts, cudaStream_t stream);

}  // namespace gable::cuda
