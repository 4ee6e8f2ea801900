// Narrow groups by AVX512-BF16's pair product: a strip's element is a pair of channels, so a step adds two products.
// Tile: 14 pixels x 1 vector of output channels of several groups, accumulators in registers, strip and weights in L1.
// Inner step: one pair of input channels of each group at one tap; it reads 1 vector of weights and 14 vectors of the
// strip, which are memory operands of 14 products. L1's two loads a cycle match the rate of the products.
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

  GABLE_CPU_BF16 Addresses(const float* first, std::int64_t pixel)
      : one(pixel * static_cast<std::int64_t>(sizeof(float))), three(3 * one), five(5 * one) {
    base[0] = reinterpret_cast<const char*>(first);
    base[1] = base[0] + kOfBase * one;
  }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) void hide() { asm("" : "+r"(one), "+r"(three), "+r"(five)); }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) __m512i at(int pixel) const {
    const int p = pixel % kOfBase;
    const std::int64_t offset = p == 3 ? three : p == 5 ? five : p == 6 ? three * 2 : one * p;
    return _mm512_loadu_si512(base[pixel / kOfBase] + offset);
  }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) void advance() {
    const char *first = base[0] + 64, *second = base[1] + 64;
    asm("" : "+r"(first), "+r"(second));
    base[0] = first;
    base[1] = second;
  }
};

template <int kPixels>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void add_taps(const NarrowGroupsCall& call,
                                                                   __m512 (&even)[kPixels], __m512 (&odd)[kPixels]) {
  const float* weights = call.weights;
  for (std::int64_t kh = call.first_row; kh < call.end_row; ++kh) {
    const float* x = call.rows[kh];
    for (std::int64_t run = 0; run < call.runs; ++run, x += call.x_run) {
      Addresses address(x, call.x_pixel);
      for (std::int64_t step = 0; step + 1 < call.steps; step += 2, weights += 2 * kFloats) {
        const __m512i w = _mm512_loadu_si512(weights), next = _mm512_loadu_si512(weights + kFloats);
        address.hide();
#pragma GCC unroll 14
        for (int p = 0; p < kPixels; ++p) even[p] = _mm512_dpbf16_ps(even[p], (__m512bh)address.at(p), (__m512bh)w);
        address.advance();
#pragma GCC unroll 14
        for (int p = 0; p < kPixels; ++p) odd[p] = _mm512_dpbf16_ps(odd[p], (__m512bh)address.at(p), (__m512bh)next);
        address.advance();
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
#else
const NarrowGroupsKernels& narrow_groups_dot_kernels(const Target& target) { return narrow_groups_kernels(target); }
#endif

}  // namespace gable::cpu
