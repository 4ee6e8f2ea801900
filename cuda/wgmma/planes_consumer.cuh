// A consumer warpgroup of pointwise_planes by wgmma: the products of 64 output channels, then bias, activation and
// stores of planes, by tensor copies where planes are whole 16 bytes.
#pragma once

#include <type_traits>

#include "cuda/common/device_code.cuh"
#include "cuda/wgmma/epilogue.cuh"
#include "cuda/wgmma/planes_pipeline.cuh"

namespace gable::cuda::wgmma::planes {

template <typename T, int pixels>
__device__ void multiply_planes(float (&d)[pixels / 2], std::uint64_t a, std::uint64_t b, int accumulate);
#define GABLE_MULTIPLY_PLANES(T, pixels, types, a_name, b_name, accumulate_name)                                       \
  template <>                                                                                                          \
  __device__ inline void multiply_planes<T, pixels>(float(&d)[pixels / 2], std::uint64_t a, std::uint64_t b,           \
                                                    int accumulate) {                                                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_name ", 0;\nwgmma.mma_async.sync.aligned.m64n" #pixels \
                 "k16.f32." types " {" GABLE_NAMES_OF_##pixels "}, " a_name ", " b_name ", p, 1, 1, 0, 1;\n}\n"        \
                 : GABLE_D_OF_##pixels                                                                                 \
                 : "l"(a), "l"(b), "r"(accumulate));                                                                   \
  }
GABLE_MULTIPLY_PLANES(__half, 64, "f16.f16", "%32", "%33", "%34")
GABLE_MULTIPLY_PLANES(__nv_bfloat16, 64, "bf16.bf16", "%32", "%33", "%34")
GABLE_MULTIPLY_PLANES(__half, 128, "f16.f16", "%64", "%65", "%66")
GABLE_MULTIPLY_PLANES(__nv_bfloat16, 128, "bf16.bf16", "%64", "%65", "%66")
#undef GABLE_MULTIPLY_PLANES

/// Operand in shared memory with 128-byte swizzle: rows of 64 pixels, contiguous along the reduction, and kChunkBytes
/// from 64 pixels to the next.
__device__ inline std::uint64_t planes_descriptor(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = 1024;
  return kSwizzle128 | (kEightRows >> 4 << 32) | (std::uint64_t{kChunkBytes >> 4} << 16) | ((address & 0x3FFFF) >> 4);
}

__device__ inline void store_matrices(std::uint32_t to, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                      std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

template <typename T, int slices, int chunks>
__device__ void multiply_stages(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m, int slice,
                                float (&sums)[chunks * kPixels / 2]) {
  Cursor at;
  int before = 0;  // the stage of the step before
  for (int step = 0; step < a.steps; ++step) {
    ptx::wait(m.full(at.slot), at.round);
    const std::uint64_t left = ptx::operand_descriptor(m.weights(at.slot) + slice * kWgmmaWeightBytes, 1024);
    const std::uint64_t right = planes_descriptor(m.pixels(at.slot));
    ptx::fence_operands();
#pragma unroll
    for (int k = 0; k < 4; ++k) {  // 16 channels each: 32 bytes of weights, 16 rows of pixels
      multiply_planes<T, chunks * kPixels>(sums, left + k * (32 >> 4), right + k * (16 * kRowBytes >> 4), k + step);
    }
    ptx::commit_products();
    ptx::wait_products<1>();
    if (step > 0 && threadIdx.x % 32 == 0) ptx::arrive(m.empty(before));
    before = at.slot;
    at.advance_one(a.stages);
  }
  ptx::wait_products<0>();
  ptx::fence_sums(sums);
}

/// For pixels 8 j + 2 (lane % 4) and the next, a thread's sums d[4 j], d[4 j + 1] are those of row 16 warp + lane / 4,
/// and d[4 j + 2], d[4 j + 3] those of the row 8 below: two rounded pixels of a row, with its bias.
template <typename T, Activation activation>
__device__ std::uint32_t finished_pair(const float* d, float bias) {
  if constexpr (activation == Activation::relu) return pack_pair<T, true>(d[0] + bias, d[1] + bias);
  return pack_pair<T>(apply<activation>(d[0] + bias), apply<activation>(d[1] + bias));
}

template <typename T, Activation activation, int chunks, typename Memory>
__device__ void put_outputs(const float (&sums)[chunks * kPixels / 2], const float (&bias)[2], const Memory& m,
                            int slice) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < 8 * chunks; j += 2) {
    const float* d = sums + 4 * j;
    store_matrices(m.outputs(slice, j / 8) + swizzled(row, (j % 8 + lane / 16) * 16),
                   finished_pair<T, activation>(d, bias[0]), finished_pair<T, activation>(d + 2, bias[1]),
                   finished_pair<T, activation>(d + 4, bias[0]), finished_pair<T, activation>(d + 6, bias[1]));
  }
}

/// By tensor copies; called by one thread.
template <int slices, int chunks>
__device__ void store_boxes(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m,
                            const PlanesTile& tile, int slice) {
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
    ptx::store_box(a.y, place.pixel, (tile.slice + slice) * kChannels, place.image, 0, m.outputs(slice, i));
  }
  ptx::commit_stores();
  ptx::wait_stores_read<0>();  // shared memory must outlive them
}

template <typename Word>
__device__ Word load_staged(std::uint32_t from) {
  Word word;
  if constexpr (sizeof(Word) == 8) {
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(word) : "r"(from) : "memory");
  } else if constexpr (sizeof(Word) == 2) {
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(word) : "r"(from) : "memory");
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  }
  return word;
}

template <int bytes, int slices, int chunks>
__device__ void store_words(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m,
                            const PlanesTile& tile, int slice) {
  using Share = RowShare<bytes>;
  using Word =
      std::conditional_t<bytes == 8, unsigned long long, std::conditional_t<bytes == 4, unsigned, unsigned short>>;
  const int first = Share::row(static_cast<int>(threadIdx.x) % kWarpgroup);
  const int channel = (tile.slice + slice) * kChannels + first;
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
    const int pixel = place.pixel + Share::byte() / 2;
    if (place.image >= a.n || pixel >= a.plane) continue;
    unsigned char* to = a.to + 2 * ((std::int64_t{place.image} * a.k + channel) * a.plane + pixel);
#pragma unroll 4
    for (int row = 0; row < kChannels; row += Share::kStep) {
      if (channel + row >= a.k) break;
      *reinterpret_cast<Word*>(to) = load_staged<Word>(m.outputs(slice, i) + swizzled(first + row, Share::byte()));
      to += Share::kStep * 2 * std::int64_t{a.plane};
    }
  }
}

template <typename T, int bytes, int slices, int chunks>
__device__ void consume(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile,
                        int slice) {
  const int thread = threadIdx.x % kWarpgroup;
  ptx::wait_for_previous_kernel();
  float bias[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int channel = (tile.slice + slice) * kChannels + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
    bias[i] = a.bias != nullptr && channel < a.k ? __ldg(a.bias + channel) : 0.0f;
  }
  float sums[chunks * kPixels / 2];
  multiply_stages<T>(a, m, slice, sums);
  ptx::named_sync(kTurnBarrier, slices * kWarpgroup);  // no product reads a stage any more
  if (a.activation == Activation::relu) {
    put_outputs<T, Activation::relu, chunks>(sums, bias, m, slice);
  } else if (a.activation == Activation::tanh) {
    put_outputs<T, Activation::tanh, chunks>(sums, bias, m, slice);
  } else {
    put_outputs<T, Activation::none, chunks>(sums, bias, m, slice);
  }
  if constexpr (bytes == kTensor) ptx::fence_shared_for_async();
  ptx::named_sync(kEpilogueBarrier + slice, kWarpgroup);
  if constexpr (bytes == kTensor) {
    if (thread == 0) store_boxes(a, m, tile, slice);
  } else {
    store_words<bytes>(a, m, tile, slice);
  }
}

}  // namespace gable::cuda::wgmma::planes
