// Narrow groups by AVX512-BF16's pair product: a strip's element is a pair of channels, so a step adds two products.
// Tile: 14 pixels x 1 vector of output channels of several groups, accumulators in registers, strip and weights in L1.
// Inner step: one pair of input channels of each group at one tap; it reads 1 vector of weights and 14 vectors of the
// strip, which are memory operands of 14 products. L1's two loads a cycle match the rate of the products.
// Groups of 8 or 16 outputs and 8, 16, 24... inputs, and those of 4 outputs and 16, 24... inputs, take quads of pairs,
// as quads-inl.h takes quads of channels: a load repeats eight channels of a group in each quarter of a vector, beside
// weights of four outputs. The strip is then a copy of the image, and a step reads 1 or 2 vectors of weights and 14
// quads for 14 or 28 products, or 4 vectors and 7 quads.
#include "cpu/bf16/epilogue_x86-inl.h"
#include "cpu/common/cpuid.h"
#include "cpu/narrow_groups/narrow_groups_kernels.h"

namespace gable::cpu {

std::string missing_narrow_groups_dot() { return missing_bf16_dot(); }

#if defined(__x86_64__)
namespace narrow_groups_dot {

constexpr std::int64_t kFloats = 16;  // of a vector

/// Two bases and three distances, as in PixelPitch: gcc would keep a register for each pixel.
struct Addresses {
  static constexpr int kOfBase = 7;
  const char* base[2];
  std::int64_t one, three, five;  // bytes

  GABLE_CPU_BF16 explicit Addresses(std::int64_t pixel)
      : one(pixel * static_cast<std::int64_t>(sizeof(float))), three(3 * one), five(5 * one) {}
  GABLE_CPU_BF16 inline __attribute__((always_inline)) void begin(const float* first) {
    base[0] = reinterpret_cast<const char*>(first);
    base[1] = base[0] + kOfBase * one;
  }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) void hide() { asm("" : "+r"(one), "+r"(three), "+r"(five)); }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) const char* of(int pixel) const {
    const int p = pixel % kOfBase;
    const std::int64_t offset = p == 3 ? three : p == 5 ? five : p == 6 ? three * 2 : one * p;
    return base[pixel / kOfBase] + offset;
  }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) __m512i at(int pixel) const {
    return _mm512_loadu_si512(of(pixel));
  }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) __m512i quad_at(int pixel) const {
    return _mm512_maskz_broadcast_i32x4(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(of(pixel))));
  }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) void advance(std::int64_t floats) {
    const std::int64_t bytes = floats * static_cast<std::int64_t>(sizeof(float));
    const char *first = base[0] + bytes, *second = base[1] + bytes;
    asm("" : "+r"(first), "+r"(second));
    base[0] = first;
    base[1] = second;
  }
};

template <int kPixels>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void add_taps(const NarrowGroupsCall& call,
                                                                   __m512 (&even)[kPixels], __m512 (&odd)[kPixels]) {
  const float* weights = call.weights;
  Addresses address(call.x_pixel);
  for (std::int64_t kh = call.first_row; kh < call.end_row; ++kh) {
    const float* x = call.rows[kh];
    for (std::int64_t run = 0; run < call.runs; ++run, x += call.x_run) {
      address.begin(x);
      for (std::int64_t step = 0; step + 1 < call.steps; step += 2, weights += 2 * kFloats) {
        const __m512i w = _mm512_loadu_si512(weights), next = _mm512_loadu_si512(weights + kFloats);
        address.hide();
#pragma GCC unroll 14
        for (int p = 0; p < kPixels; ++p) even[p] = _mm512_dpbf16_ps(even[p], (__m512bh)address.at(p), (__m512bh)w);
        address.advance(kFloats);
#pragma GCC unroll 14
        for (int p = 0; p < kPixels; ++p) odd[p] = _mm512_dpbf16_ps(odd[p], (__m512bh)address.at(p), (__m512bh)next);
        address.advance(kFloats);
      }
      if (call.steps % 2 == 0) continue;
      const __m512i w = _mm512_loadu_si512(weights);
      weights += kFloats;
#pragma GCC unroll 14
      for (int p = 0; p < kPixels; ++p) even[p] = _mm512_dpbf16_ps(even[p], (__m512bh)address.at(p), (__m512bh)w);
    }
  }
}

template <int kPixels>
GABLE_CPU_BF16 void run_tile(const NarrowGroupsCall& call) {
  constexpr bool kTwoSets = kPixels < 8;  // fewer accumulators would wait for the product's latency
  __m512 sums[kPixels];
  const __m512 bias = _mm512_loadu_ps(call.bias);
#pragma GCC unroll 14
  for (auto& sum : sums) sum = bias;
  if constexpr (kTwoSets) {
    __m512 odd[kPixels];
#pragma GCC unroll 14
    for (auto& sum : odd) sum = _mm512_setzero_ps();
    add_taps<kPixels>(call, sums, odd);
#pragma GCC unroll 14
    for (int p = 0; p < kPixels; ++p) sums[p] = _mm512_add_ps(sums[p], odd[p]);
  } else {
    add_taps<kPixels>(call, sums, sums);
  }
  const __m512 least = _mm512_set1_ps(call.least);
  const auto lanes = static_cast<__mmask16>((1u << call.valid) - 1);
  auto* y = static_cast<std::uint16_t*>(call.y);
#pragma GCC unroll 14
  for (int p = 0; p < kPixels; ++p, y += call.y_pixel) {
    _mm256_mask_storeu_epi16(y, lanes, (__m256i)_mm512_cvtneps_pbh(bf16::max_or_second(least, sums[p])));
  }
}

template <int kPixels>
void fill_tiles(NarrowGroupsKernels& kernels) {
  kernels.tile[kPixels] = &run_tile<kPixels>;
  if constexpr (kPixels > 1) fill_tiles<kPixels - 1>(kernels);
}

/// Lane 4 o + v is output o of vector v: the sum of the four lanes of its quarter o.
GABLE_CPU_BF16 inline __attribute__((always_inline)) __m512 add_quarters(__m512 a, __m512 b, __m512 c, __m512 d) {
  constexpr __mmask16 kAll = 0xffff;  // the unmasked forms' undefined operands make g++ 12 warn
  const __m512 ab = _mm512_add_ps(_mm512_maskz_unpacklo_ps(kAll, a, b), _mm512_maskz_unpackhi_ps(kAll, a, b));
  const __m512 cd = _mm512_add_ps(_mm512_maskz_unpacklo_ps(kAll, c, d), _mm512_maskz_unpackhi_ps(kAll, c, d));
  const __m512d low = _mm512_maskz_unpacklo_pd(0xff, _mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d high = _mm512_maskz_unpackhi_pd(0xff, _mm512_castps_pd(ab), _mm512_castps_pd(cd));
  return _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
}

/// QuadsTile of quads-inl.h with pairs of channels for channels. kVectors: a group's output channels, 4 in each.
template <int kPixels, int kVectors>
struct PairQuadsTile {
  static constexpr int kStored = 4 / kVectors;  // pixels whose outputs fill a vector
  using Sums = __m512[kPixels][kVectors];

  /// Adds all taps of the group whose first channels lie `channel` pairs into a pixel.
  GABLE_CPU_BF16 static inline __attribute__((always_inline)) void add_taps(const NarrowGroupsCall& call,
                                                                            std::int64_t channel, const float* weights,
                                                                            Sums& sums) {
    Addresses address(call.x_pixel);
    for (std::int64_t kh = call.first_row; kh < call.end_row; ++kh, weights += call.weights_row) {
      const float *x = call.rows[kh] + channel, *w = weights;
      for (std::int64_t run = 0; run < call.runs; ++run, x += call.x_run) {
        address.begin(x);
        for (std::int64_t step = 0; step < call.steps; ++step, w += kVectors * kFloats) {
          __m512i of_outputs[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) of_outputs[v] = _mm512_loadu_si512(w + v * kFloats);
          address.hide();
#pragma GCC unroll 14
          for (int p = 0; p < kPixels; ++p) {
            const __m512i quad = address.quad_at(p);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
              sums[p][v] = _mm512_dpbf16_ps(sums[p][v], (__m512bh)quad, (__m512bh)of_outputs[v]);
            }
          }
          address.advance(kQuad);
        }
      }
    }
  }

  /// Stores `pixels` of the kStored pixels whose outputs lie one after another in `outputs`.
  GABLE_CPU_BF16 static inline __attribute__((always_inline)) void store(__m256i outputs, std::uint16_t* y,
                                                                         std::int64_t y_pixel, int pixels) {
    const __m128i halves[2] = {_mm256_castsi256_si128(outputs), _mm256_extracti128_si256(outputs, 1)};
#pragma GCC unroll 4
    for (int p = 0; p < kStored; ++p, y += y_pixel) {
      if (p >= pixels) break;
      if constexpr (kVectors == 4) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), outputs);
      } else if constexpr (kVectors == 2) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y), halves[p]);
      } else if (p % 2 == 0) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(y), halves[p / 2]);
      } else {
        _mm_storeh_pd(reinterpret_cast<double*>(y), _mm_castsi128_pd(halves[p / 2]));
      }
    }
  }

  GABLE_CPU_BF16 static inline __attribute__((always_inline)) void finish(const NarrowGroupsCall& call,
                                                                          const Sums& sums, std::uint16_t* y) {
    const __m512 least = _mm512_set1_ps(call.least);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
#pragma GCC unroll 14
    for (int p = 0; p < kPixels; p += kStored, y += kStored * call.y_pixel) {
      __m512 four[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int pixel = p + i / kVectors;
        four[i] = pixel < kPixels ? sums[pixel][i % kVectors] : _mm512_setzero_ps();
      }
      const __m512 added = add_quarters(four[0], four[1], four[2], four[3]);
      const __m512 outputs = bf16::max_or_second(least, _mm512_maskz_permutexvar_ps(0xffff, order, added));
      store((__m256i)_mm512_cvtneps_pbh(outputs), y, call.y_pixel, kPixels - p);
    }
  }

  GABLE_CPU_BF16 static void run(const NarrowGroupsCall& call) {
    constexpr int kOutputs = kVectors * kQuad;
    const std::int64_t of_group = call.runs * call.steps * kVectors * kFloats;
    for (int group = 0; group < call.valid / kOutputs; ++group) {
      Sums sums;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m512 bias = _mm512_loadu_ps(call.bias + (group * kVectors + v) * kFloats);
#pragma GCC unroll 14
        for (int p = 0; p < kPixels; ++p) sums[p][v] = bias;
      }
      add_taps(call, group * call.steps * kQuad, call.weights + group * of_group, sums);
      finish(call, sums, static_cast<std::uint16_t*>(call.y) + group * kOutputs);
    }
  }
};

/// Sums of all pixels and outputs fit the registers.
template <int kVectors>
constexpr int kPairQuadsPixels = kVectors == 4 ? kMaxQuadsPixels / 2 : kMaxQuadsPixels;

template <int kVectors, int kPixels = kPairQuadsPixels<kVectors>>
void fill_pair_quads_tiles(NarrowGroupsKernels& kernels) {
  kernels.tile[kPixels] = &PairQuadsTile<kPixels, kVectors>::run;
  if constexpr (kPixels > 1) fill_pair_quads_tiles<kVectors, kPixels - 1>(kernels);
}

template <int kVectors>
const NarrowGroupsKernels& pair_quads_kernels(const Target& target) {
  static const NarrowGroupsKernels kernels = [&] {
    NarrowGroupsKernels made = narrow_groups_kernels(target);
    made.pairs = made.quads = true;
    made.max_pixels = kPairQuadsPixels<kVectors>;
    fill_pair_quads_tiles<kVectors>(made);
    return made;
  }();
  return kernels;
}

}  // namespace narrow_groups_dot

const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target) {
  static const NarrowGroupsKernels kernels = [&] {
    NarrowGroupsKernels made = narrow_groups_kernels(target);
    made.pairs = true;
    made.max_pixels = kMaxNarrowGroupsPixels;
    narrow_groups_dot::fill_tiles<kMaxNarrowGroupsPixels>(made);
    return made;
  }();
  return kernels;
}
const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target, const Conv2dProblem& p) {
  if (!has_pair_quads(p.group_c(), p.group_k())) return narrow_groups_dot_kernels(target);
  if (p.group_k() == kQuad) return narrow_groups_dot::pair_quads_kernels<1>(target);
  return p.group_k() == 2 * kQuad ? narrow_groups_dot::pair_quads_kernels<2>(target)
                                  : narrow_groups_dot::pair_quads_kernels<4>(target);
}
#else
const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target) { return narrow_groups_kernels(target); }
const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target, const Conv2dProblem&) {
  return narrow_groups_kernels(target);
}
#endif

}  // namespace gable::cpu
