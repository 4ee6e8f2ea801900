// Epilogues of up to 32 lanes of bf16 and f16 in AVX-512 registers, for the x86 units. Highway compiles for no target
// with AVX512-BF16, so each function names its instruction sets, and runs only where CPUID allows it.
#pragma once

#if defined(__x86_64__)
#define GABLE_CPU_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

#include <immintrin.h>

#include <limits>

#include "cpu/bf16/tile.h"

namespace gable::cpu::bf16 {

/// The larger value; b where either is NaN. (The unmasked form's undefined operand makes g++ 12 warn.)
GABLE_CPU_BF16 inline __m512 max_or_second(__m512 a, __m512 b) { return _mm512_maskz_max_ps(0xffff, a, b); }

/// The larger value; NaN when either is NaN.
GABLE_CPU_BF16 inline __m512 nan_max(__m512 a, __m512 b) {
  return _mm512_mask_mov_ps(max_or_second(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}

GABLE_CPU_BF16 inline __m512 pooled(const Epilogue& call, std::int64_t position) {
  const float* above = call.accumulators + position;
  const float* below = call.accumulators_below + position;
  return nan_max(nan_max(_mm512_loadu_ps(above), _mm512_loadu_ps(above + kLanes)),
                 nan_max(_mm512_loadu_ps(below), _mm512_loadu_ps(below + kLanes)));
}

/// Bias, relu, conversion and store of 32 accumulators, after the pool. Conversion rounds to nearest even, bf16's with
/// subnormal results zero.
template <DType kType, bool kMayBeNonTemporal = true>
struct EpilogueVectors {
  __m512 low_bias, high_bias, least;
  __mmask32 lanes;
  bool non_temporal, whole;  // whole: all 32 lanes

  GABLE_CPU_BF16 explicit EpilogueVectors(const Epilogue& call)
      : lanes(static_cast<__mmask32>((std::uint64_t{1} << call.lanes) - 1)),
        non_temporal(call.non_temporal),
        whole(call.lanes == kLanes) {
    low_bias = high_bias = _mm512_setzero_ps();
    if (call.bias != nullptr) {
      low_bias = _mm512_loadu_ps(call.bias);
      high_bias = _mm512_loadu_ps(call.bias + kLanes / 2);
    }
    least = _mm512_set1_ps(call.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity());
  }
  GABLE_CPU_BF16 EpilogueVectors(const PanelTile& tile, const PendingPanel& panel)
      : lanes(static_cast<__mmask32>((std::uint64_t{1} << panel.lanes) - 1)),
        non_temporal(tile.non_temporal),
        whole(panel.lanes == kLanes) {
    low_bias = high_bias = _mm512_setzero_ps();
    if (panel.bias != nullptr) {
      low_bias = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), panel.bias);
      high_bias = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16), panel.bias + kLanes / 2);
    }
    least = _mm512_set1_ps(tile.relu ? 0.0f : -std::numeric_limits<float>::infinity());
  }
  GABLE_CPU_BF16 __m512i halves(__m512 low, __m512 high) const {
    low = max_or_second(least, _mm512_add_ps(low, low_bias));
    high = max_or_second(least, _mm512_add_ps(high, high_bias));
    return narrowed(low, high);
  }
  GABLE_CPU_BF16 void store(__m512 low, __m512 high, std::uint16_t* y) const {
    if constexpr (kType == DType::bf16) {
      if (lanes <= 0xffff) return store_low(low, y);
    }
    const __m512i line = halves(low, high);
    if (kMayBeNonTemporal && non_temporal) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(y), line);
    } else if (whole) {
      _mm512_storeu_si512(y, line);
    } else {
      _mm512_mask_storeu_epi16(y, lanes, line);
    }
  }
  /// The first 16 lanes alone, of bf16.
  GABLE_CPU_BF16 void store_low(__m512 low, std::uint16_t* y) const {
    low = max_or_second(least, _mm512_add_ps(low, low_bias));
    _mm256_mask_storeu_epi16(y, static_cast<__mmask16>(lanes), (__m256i)_mm512_cvtneps_pbh(low));
  }
  GABLE_CPU_BF16 static __m512i narrowed(__m512 low, __m512 high) {
    if constexpr (kType == DType::bf16) {
      return (__m512i)_mm512_cvtne2ps_pbh(high, low);
    } else {
      constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
      const __m256i low_half = _mm512_maskz_cvtps_ph(0xffff, low, kNearest);
      const __m256i high_half = _mm512_maskz_cvtps_ph(0xffff, high, kNearest);
      return _mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(low_half), high_half, 1);
    }
  }
};

template <DType kType>
GABLE_CPU_BF16 void run_epilogue(const Epilogue& call) {
  constexpr std::int64_t kHalf = kLanes / 2;
  const EpilogueVectors<kType> vectors(call);
  std::uint16_t* y = static_cast<std::uint16_t*>(call.y);
  for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel, y += call.y_pixel) {
    if (call.accumulators_below != nullptr) {
      const std::int64_t left = 2 * pixel * kLanes;
      vectors.store(pooled(call, left), pooled(call, left + kHalf), y);
    } else {
      const float* accumulators = call.accumulators + pixel * kLanes;
      vectors.store(_mm512_loadu_ps(accumulators), _mm512_loadu_ps(accumulators + kHalf), y);
    }
  }
}

}  // namespace gable::cpu::bf16
#endif
