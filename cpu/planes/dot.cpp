// AVX512-BF16 tiles: as the f32 tile of kernels.cpp, with pairs of channels for channels: 14 lanes x 2 vectors, few
// lanes 4 vectors. A step of two channels is 28 products of 32 multiply-adds, 2 loads of x and 14 broadcasts of
// weights.
#include <algorithm>
#include <utility>

#include "cpu/common/cpuid.h"
#include "cpu/planes/tile_unit.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define GABLE_CPU_PLANES_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#endif

namespace gable::cpu::planes {

#if defined(__x86_64__)
namespace {

constexpr int kVector = 16;
constexpr int kDotLanes = 14;
constexpr int kDotLanesOfFour = 6;
/// Weights are prefetched this many elements ahead: a page, which the hardware's stream does not cross.
constexpr std::int64_t kWeightsAhead = 1024;

/// Broadcasts a pair to all lanes. gcc would use a memory operand, with which the product takes longer.
GABLE_CPU_PLANES_BF16 inline __m512bh broadcast(float pair) {
  __m512 all = _mm512_set1_ps(pair);
  asm("" : "+v"(all));
  return (__m512bh)all;
}

/// Stores up to 16 bf16.
GABLE_CPU_PLANES_BF16 inline void store_half(__m512 value, std::uint16_t* y, std::int64_t count) {
  const auto mask = static_cast<__mmask16>(count >= kVector ? 0xffff : (1u << count) - 1);
  _mm256_mask_storeu_epi16(y, mask, (__m256i)_mm512_cvtneps_pbh(value));
}

template <int kVectors, int kLanes>
GABLE_CPU_PLANES_BF16 void store(const Tile& tile, const __m512 (&sums)[kLanes][kVectors]) {
  if (tile.direct.y == nullptr) {
#pragma GCC unroll 14
    for (int lane = 0; lane < kLanes; ++lane) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        _mm512_storeu_ps(tile.sums + lane * tile.sums_lane + v * kVector, sums[lane][v]);
    }
    return;
  }
  const __m512 least = _mm512_set1_ps(tile.direct.least);
  auto* y = static_cast<std::uint16_t*>(tile.direct.y);
#pragma GCC unroll 14
  for (int lane = 0; lane < kLanes; ++lane, y += tile.direct.plane) {
    const __m512 bias = tile.direct.bias == nullptr ? _mm512_setzero_ps() : _mm512_set1_ps(tile.direct.bias[lane]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      // The maximum is its second operand where either is NaN.
      const __m512 value = _mm512_maskz_max_ps(0xffff, least, _mm512_add_ps(sums[lane][v], bias));
      const std::int64_t rest = tile.direct.count - v * kVector;
      if (rest > 0) store_half(value, y + v * kVector, rest);
    }
  }
}

template <int kVectors, int kLanes>
GABLE_CPU_PLANES_BF16 void dot_tile(const Tile& tile) {
  __m512 sums[kLanes][kVectors];
#pragma GCC unroll 14
  for (auto& lane : sums) {
#pragma GCC unroll 4
    for (auto& sum : lane) sum = _mm512_setzero_ps();
  }
  const float* weights = tile.weights;
  const auto* block = static_cast<const float*>(tile.x);
  const std::int64_t x_step = tile.x_step;
  for (std::int64_t left = tile.steps; left > 0; left -= kBlockSteps, block += kBlockSteps * x_step) {
    const std::int64_t steps = std::min(left, kBlockSteps);
    for (std::int64_t tap = 0; tap < tile.tap_count; ++tap) {
      const float* x = block + tile.taps[tap];
      for (std::int64_t step = 0; step < steps; ++step, x += x_step, weights += kLanes) {
        __m512bh in[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) in[v] = (__m512bh)_mm512_loadu_ps(x + v * kVector);
#pragma GCC unroll 14
        for (int lane = 0; lane < kLanes; ++lane) {
          const __m512bh weight = broadcast(weights[lane]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) sums[lane][v] = _mm512_dpbf16_ps(sums[lane][v], weight, in[v]);
        }
      }
    }
  }
  store<kVectors, kLanes>(tile, sums);
}

template <int kVectors, int kLanes>
void fill_tiles(TileUnit& unit) {
  unit.tile[kVectors][kLanes] = &dot_tile<kVectors, kLanes>;
  if constexpr (kLanes > 1) fill_tiles<kVectors, kLanes - 1>(unit);
}

/// Pixels by lanes: a pair of channels of each of up to 14 pixels is broadcast.
template <int kVectors, int kPixels>
GABLE_CPU_PLANES_BF16 void dot_pixels(const Tile& tile) {
  __m512 sums[kPixels][kVectors];
#pragma GCC unroll 14
  for (auto& pixel : sums) {
#pragma GCC unroll 2
    for (auto& sum : pixel) sum = _mm512_setzero_ps();
  }
  constexpr std::int64_t kLanes = kVectors * kVector;
  const float* weights = tile.weights;
  const auto* block = static_cast<const float*>(tile.x);
  const std::int64_t x_step = tile.x_step;
  for (std::int64_t left = tile.steps; left > 0; left -= kBlockSteps, block += kBlockSteps * x_step) {
    const std::int64_t steps = std::min(left, kBlockSteps);
    weights += tile.first_tap * steps * kLanes;
    for (std::int64_t tap = tile.first_tap; tap < tile.end_tap; ++tap) {
      const float* x = block + tile.taps[tap];
      for (std::int64_t step = 0; step < steps; ++step, x += x_step, weights += kLanes) {
        __m512bh lanes[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          lanes[v] = (__m512bh)_mm512_loadu_ps(weights + v * kVector);
          __builtin_prefetch(weights + v * kVector + kWeightsAhead);
        }
#pragma GCC unroll 14
        for (int p = 0; p < kPixels; ++p) {
          const __m512bh pixel = broadcast(x[p]);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) sums[p][v] = _mm512_dpbf16_ps(sums[p][v], pixel, lanes[v]);
        }
      }
    }
    weights += (tile.tap_count - tile.end_tap) * steps * kLanes;
  }
#pragma GCC unroll 14
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(tile.sums + p * tile.sums_lane + v * kVector, sums[p][v]);
  }
}

template <int kPixels>
void fill_pixel_tiles(TileUnit& unit) {
  unit.pixel_tile[1][kPixels] = &dot_pixels<1, kPixels>;
  unit.pixel_tile[2][kPixels] = &dot_pixels<2, kPixels>;
  if constexpr (kPixels > 1) fill_pixel_tiles<kPixels - 1>(unit);
}

TileUnit make_unit() {
  TileUnit unit;
  unit.name = "planes_bf16_dot";
  unit.coverage = PathUnit::bf16_dot;
  unit.missing = missing_bf16_dot();
  unit.channels = 2;
  unit.positions = kVector;
  unit.most_lanes = kDotLanes;
  unit.stores[static_cast<int>(DType::bf16)] = true;
  // Measured on Zen 4, which multiplies pairs at the rate of f32.
  unit.vector_ns = 0.29;
  fill_tiles<1, kDotLanes>(unit);
  fill_tiles<2, kDotLanes>(unit);
  fill_tiles<4, kDotLanesOfFour>(unit);
  unit.most_pixels = kMaxPixels;
  fill_pixel_tiles<kMaxPixels>(unit);
  return unit;
}

}  // namespace

const TileUnit& dot_unit() {
  static const TileUnit unit = make_unit();
  return unit;
}

#else

const TileUnit& dot_unit() {
  static const TileUnit unit = [] {
    TileUnit none;
    none.name = "planes_bf16_dot";
    none.coverage = PathUnit::bf16_dot;
    none.missing = missing_bf16_dot();
    return none;
  }();
  return unit;
}

#endif

}  // namespace gable::cpu::planes
