// See bf16_parts.h.
#include "cuda/wgmma/bf16_parts.h"

#include <gable/problem.h>
#include "cuda/common/check.h"
#include "cuda/wgmma/bf16_parts.cuh"

namespace gable::cuda {
namespace {

constexpr unsigned kThreads = 256;

template <int parts>
__global__ void __launch_bounds__(kThreads) cut_kernel(const float* __restrict__ from, uint4* __restrict__ to,
                                                       std::int64_t vectors, int row_vectors, int channels) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= vectors) return;
  float v[kPartVector];
  load_vector(from, at, row_vectors, channels, v);
  store_parts<parts>(v, to, at);
}

}  // namespace

std::size_t cut_bytes(std::int64_t rows, std::int64_t channels, int parts) {
  return static_cast<std::size_t>(rows * round_up(channels, kPartChannels) * parts) * sizeof(__nv_bfloat16);
}

void cut_rows(const float* from, void* to, std::int64_t rows, std::int64_t channels, int parts, cudaStream_t stream) {
  const std::int64_t row_vectors = round_up(channels, kPartChannels) / kPartVector, vectors = rows * row_vectors;
  const auto kernel = parts == 2 ? cut_kernel<2> : cut_kernel<3>;
  kernel<<<static_cast<unsigned>(ceil_div(vectors, kThreads)), kThreads, 0, stream>>>(
      from, static_cast<uint4*>(to), vectors, static_cast<int>(row_vectors), static_cast<int>(channels));
  check_launch("cut_rows");
}

}  // namespace gable::cuda
