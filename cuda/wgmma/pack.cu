// See pack.h.
#include "cuda/wgmma/pack.h"

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/device_code.cuh"
#include "cuda/wgmma/bf16_parts.cuh"
#include "cuda/wgmma/planes_geometry.h"

namespace gable::cuda {
namespace {

struct PackArguments {
  WeightStrides strides;
  WgmmaSlices slices;
  int slices_of_tile;
  int k, c;  // output channels in all, input channels of a group
  int channel_blocks, taps;
  long long vectors;  // of 16 bytes in the packed weights
  WgmmaTap tap[kWgmmaMaxSteps];
};

/// f32 rounds to tf32 here, to nearest.
__device__ float round_to_tf32(float v) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}
__device__ void pack_value(std::uint16_t v, int, std::uint16_t& packed) { packed = v; }
__device__ void pack_value(float v, int, float& packed) { packed = round_to_tf32(v); }
__device__ void pack_value(float v, int part, __nv_bfloat16& packed) {
  __nv_bfloat16 parts[3];
  cut(v, parts);
  packed = part == 0 ? parts[0] : part == 1 ? parts[1] : parts[2];
}

/// A thread makes 16 bytes. E: the element as stored, P: as packed.
template <typename E, typename P>
__global__ void pack_weights(const __grid_constant__ PackArguments a, const E* __restrict__ weights, uint4* packed) {
  constexpr int kVector = 16 / sizeof(P), kBlock = 128 / sizeof(P);
  const long long vector = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (vector >= a.vectors) return;
  const int slot = static_cast<int>(vector % 8), row = static_cast<int>(vector / 8 % kWgmmaChannels);
  const long long stage = vector / (8 * kWgmmaChannels);
  const int tap = static_cast<int>(stage % a.taps);
  const int block = static_cast<int>(stage / a.taps % a.channel_blocks);
  const int slice = static_cast<int>(stage / a.taps / a.channel_blocks);
  const long long k = a.slices.first_output(slice) + row;
  int c = block * kBlock + (slot ^ (row % 8)) * kVector;
  if (a.slices.group_k != 0 && k < a.k) {  // to a channel of the group
    const int first = slice / a.slices_of_tile * a.slices_of_tile;
    c += a.slices.first_input(a.slices.first_output(first)) - static_cast<int>(k / a.slices.group_k) * a.slices.group_c;
  }
  alignas(16) P values[kVector] = {};
  for (int i = 0; i < kVector; ++i) {
    if (k < a.k && c + i >= 0 && c + i < a.c) {
      pack_value(weights[k * a.strides.out + (c + i) * a.strides.in + a.tap[tap].r * a.strides.row +
                         a.tap[tap].s * a.strides.column],
                 a.tap[tap].part, values[i]);
    }
  }
  packed[vector] = *reinterpret_cast<const uint4*>(values);
}

struct PlanesPacking {
  WeightStrides strides;
  int k, c, steps;
  std::int64_t elements;
};

/// 64 output by 64 input channels each, rows of 128 bytes in the swizzled order of the matrix unit.
__global__ void pack_planes_weights(const PlanesPacking a, const std::uint16_t* __restrict__ weights,
                                    std::uint16_t* __restrict__ packed) {
  const std::int64_t at = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (at >= a.elements) return;
  const auto block = static_cast<int>(at / (kWgmmaChannels * kWgmmaChannels));
  const int row = static_cast<int>(at / kWgmmaChannels % kWgmmaChannels), slot = static_cast<int>(at / 8 % 8);
  const int slice = block / a.steps, step = block - slice * a.steps;
  const int k = slice * kWgmmaChannels + row,
            c = step * kWgmmaChannels + (slot ^ (row % 8)) * 8 + static_cast<int>(at % 8);
  packed[at] = k < a.k && c < a.c ? weights[k * a.strides.out + c * a.strides.in] : std::uint16_t{0};
}

__global__ void end_of_packing() {}

}  // namespace

std::size_t wgmma_packed_bytes(const WgmmaGeometry& g) {
  return static_cast<std::size_t>(wgmma_channel_slices(g)) * static_cast<std::size_t>(g.steps.per_item()) *
         kWgmmaWeightBytes;
}

void pack_wgmma_weights(const Conv2dProblem& p, const WgmmaGeometry& g, const void* weights,
                        const WeightStrides& strides, void* packed, cudaStream_t stream) {
  PackArguments a{};
  a.strides = strides;
  a.k = static_cast<int>(p.k);
  a.c = static_cast<int>(p.group_c());
  a.slices = g.slices;
  a.slices_of_tile = wgmma_slices_of_tile(g);
  a.channel_blocks = g.steps.channel_blocks;
  a.taps = static_cast<int>(g.steps.taps.size());
  a.vectors = static_cast<long long>(wgmma_packed_bytes(g) / 16);
  std::copy(g.steps.taps.begin(), g.steps.taps.end(), a.tap);
  constexpr unsigned kBlock = 256;
  const auto blocks = static_cast<unsigned>(ceil_div(a.vectors, kBlock));
  auto* const to = static_cast<uint4*>(packed);
  if (g.steps.parts > 1) {
    pack_weights<float, __nv_bfloat16><<<blocks, kBlock, 0, stream>>>(a, static_cast<const float*>(weights), to);
  } else if (p.dtype == DType::f32) {
    pack_weights<float, float><<<blocks, kBlock, 0, stream>>>(a, static_cast<const float*>(weights), to);
  } else {
    using Half = std::uint16_t;
    pack_weights<Half, Half><<<blocks, kBlock, 0, stream>>>(a, static_cast<const Half*>(weights), to);
  }
  check_launch("pack_weights");
  end_wgmma_packing(stream);
}

std::size_t wgmma_planes_packed_bytes(const Conv2dProblem& p) {
  return static_cast<std::size_t>(wgmma::planes::slices_of(p) * wgmma::planes::steps_of(p)) * kWgmmaWeightBytes;
}

void pack_wgmma_planes_weights(const Conv2dProblem& p, const void* weights, const WeightStrides& strides, void* packed,
                               cudaStream_t stream) {
  PlanesPacking a{};
  a.strides = strides;
  a.k = static_cast<int>(p.k);
  a.c = static_cast<int>(p.c);
  a.steps = static_cast<int>(wgmma::planes::steps_of(p));
  a.elements = static_cast<std::int64_t>(wgmma_planes_packed_bytes(p) / 2);
  constexpr unsigned kBlock = 256;
  pack_planes_weights<<<static_cast<unsigned>(ceil_div(a.elements, kBlock)), kBlock, 0, stream>>>(
      a, static_cast<const std::uint16_t*>(weights), static_cast<std::uint16_t*>(packed));
  check_launch("pack_planes_weights");
  end_wgmma_packing(stream);
}

void end_wgmma_packing(cudaStream_t stream) {
  end_of_packing<<<1, 1, 0, stream>>>();
  check_launch("end_of_packing");
}

}  // namespace gable::cuda
