// See bf16_parts.h.
#include "cuda/bf16_parts.h"

#include "cuda/bf16_parts.cuh"
#include "cuda/check.h"
#include "cuda/types.h"

namespace gable::cuda {
namespace {

constexpr int kVector = 8;                       // values that a thread cuts: 32 bytes in, 16 a part out
constexpr int kSlots = kPartChannels / kVector;  // threads for the channels that lie together
constexpr unsigned kThreads = 256;

__device__ void load(const float* from, std::int64_t left, bool aligned, float (&v)[kVector]) {
  if (aligned && left >= kVector) {
    const float4 low = __ldcs(reinterpret_cast<const float4*>(from));
    const float4 high = __ldcs(reinterpret_cast<const float4*>(from) + 1);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = i < left ? from[i] : 0.0f;
}

template <int parts>
__global__ void __launch_bounds__(kThreads)
    cut_kernel(const float* __restrict__ from, uint4* __restrict__ to, std::int64_t vectors, std::uint32_t row_vectors,
               std::int64_t channels) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= vectors) return;
  const std::int64_t row = at / row_vectors;
  const std::int64_t channel = (at - row * row_vectors) * kVector;
  float v[kVector];
  load(from + row * channels + channel, channels - channel, channels % 4 == 0, v);
  union {
    __nv_bfloat16 elements[kVector];
    uint4 vector;
  } out[parts];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    __nv_bfloat16 cuts[parts];
    cut(v[i], cuts);
#pragma unroll
    for (int part = 0; part < parts; ++part) out[part].elements[i] = cuts[part];
  }
  uint4* const mine = to + at / kSlots * (kSlots * parts) + at % kSlots;
#pragma unroll
  for (int part = 0; part < parts; ++part) mine[part * kSlots] = out[part].vector;
}

}  // namespace

std::size_t cut_bytes(std::int64_t rows, std::int64_t channels, int parts) {
  return static_cast<std::size_t>(rows * round_up(channels, kPartChannels) * parts) * sizeof(__nv_bfloat16);
}

void cut_rows(const float* from, void* to, std::int64_t rows, std::int64_t channels, int parts, cudaStream_t stream) {
  const std::int64_t row_vectors = round_up(channels, kPartChannels) / kVector, vectors = rows * row_vectors;
  const auto kernel = parts == 2 ? cut_kernel<2> : cut_kernel<3>;
  kernel<<<static_cast<unsigned>(ceil_div(vectors, kThreads)), kThreads, 0, stream>>>(
      from, static_cast<uint4*>(to), vectors, static_cast<std::uint32_t>(row_vectors), channels);
  check_launch("cut_rows");
}

}  // namespace gable::cuda
