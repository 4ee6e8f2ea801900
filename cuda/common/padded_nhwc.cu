// See padded_nhwc.h.
#include "cuda/common/padded_nhwc.h"

#include <algorithm>

#include <gable/problem.h>
#include "cuda/common/check.h"

namespace gable::cuda {
namespace {

/// A thread moves one element at a time: the odd pitch aligns rows to nothing more.
template <typename E>
__global__ void copy_elements(const E* __restrict__ from, E* __restrict__ to, std::int64_t rows, std::int64_t count,
                              std::int64_t from_pitch, std::int64_t to_pitch) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t at = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; at < rows * to_pitch;
       at += stride) {
    const std::int64_t row = at / to_pitch, column = at % to_pitch;
    to[at] = column < count ? from[row * from_pitch + column] : E{};
  }
}

}  // namespace

void copy_rows(const void* from, void* to, std::int64_t rows, std::int64_t count, std::int64_t from_pitch,
               std::int64_t to_pitch, int element_bytes, cudaStream_t stream) {
  constexpr std::int64_t kThreads = 256, kMostBlocks = 8192;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, ceil_div(rows * to_pitch, kThreads)));
  if (element_bytes == 4) {
    copy_elements<<<blocks, kThreads, 0, stream>>>(static_cast<const std::uint32_t*>(from),
                                                   static_cast<std::uint32_t*>(to), rows, count, from_pitch, to_pitch);
  } else {
    copy_elements<<<blocks, kThreads, 0, stream>>>(static_cast<const std::uint16_t*>(from),
                                                   static_cast<std::uint16_t*>(to), rows, count, from_pitch, to_pitch);
  }
  check_launch("copy_elements");
}

}  // namespace gable::cuda
