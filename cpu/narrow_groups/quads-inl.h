// Groups of 4 or 8 output channels whose input channels are a multiple of 4 and at least 8, with vectors of 16 lanes.
// The strip holds the channels of a block as they lie. A load repeats a quad, four input channels of a group, in each
// quarter of a vector. A vector of weights belongs to four output channels: lane 4 o + i has the weight of output o and
// input i. So all 16 lanes of a product count. A lane for each output channel would leave half of the vector empty for
// groups of 8, and "spread" vectors need a permutation for each channel and pixel. An output's sum lies in the four
// lanes of its quarter: at its end, a tile adds the lanes of four vectors into one.
// Tile: 14 pixels × 1 or 2 vectors. A step reads 1 or 2 vectors of weights and 14 quads for 14 or 28 FMA.
#if defined(GABLE_CPU_QUADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_QUADS_INL_H_
#undef GABLE_CPU_QUADS_INL_H_
#else
#define GABLE_CPU_QUADS_INL_H_
#endif

#include "cpu/common/pixel_pitch-inl.h"
#include "cpu/common/strides.h"
#include "cpu/common/vector-inl.h"
#include "cpu/narrow_groups/narrow_groups_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

using QuadD = hn::CappedTag<float, kQuadLanes>;
using QuadV = hn::Vec<QuadD>;

/// Lane 4 o + v is output o of vector v: the sum of the four lanes of its quarter o.
HWY_INLINE QuadV add_quarters(QuadV a, QuadV b, QuadV c, QuadV e) {
  const QuadD d;
  const hn::Repartition<double, QuadD> pairs;
  const auto ab = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce)));
}

/// kVectors: a group's output channels, 4 in each.
template <int kPixels, int kVectors>
struct QuadsTile {
  static constexpr int kBases = (kPixels + kBasePixels - 1) / kBasePixels;
  static constexpr int kStored = 4 / kVectors;  // pixels whose outputs fill a vector
  using Sums = QuadV[kPixels * kVectors];

  /// Adds all taps of the group whose first channel lies `channel` floats into a pixel.
  static HWY_INLINE void add_taps(const NarrowGroupsCall& call, std::int64_t channel, const float* weights, Sums& sum) {
    const QuadD d;
    PixelPitch px = PixelPitch::of(call.x_pixel);
    for (std::int64_t kh = call.first_row; kh < call.end_row; ++kh, weights += call.weights_row) {
      const float* tap = call.rows[kh] + channel;
      const float* w = weights;
      for (std::int64_t run = 0; run < call.runs; ++run, tap += call.x_run) {
        const float* base[kBases];
        HWY_UNROLL(2) for (int b = 0; b < kBases; ++b) base[b] = tap + b * kBasePixels * call.x_pixel;
        for (std::int64_t step = 0; step < call.steps; ++step, w += kVectors * kQuadLanes) {
          QuadV of_outputs[kVectors];
          HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) of_outputs[v] = hn::LoadU(d, w + v * kQuadLanes);
          px.hide(kPixels);
          HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
            const QuadV x = hn::LoadDup128(d, px.at(base[p / kBasePixels], p % kBasePixels));
            HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
              sum[p * kVectors + v] = add_product(d, of_outputs[v], x, sum[p * kVectors + v]);
            }
          }
          HWY_UNROLL(2) for (int b = 0; b < kBases; ++b) {
            const float* next = base[b] + kQuad;
            keep_apart(next);
            base[b] = next;
          }
        }
      }
    }
  }

  /// Stores `pixels` of the kStored pixels whose outputs lie one after another in `outputs`.
  template <class D, class T = hn::TFromD<D>>
  static HWY_INLINE void store(D d, hn::Vec<D> outputs, T* y, std::int64_t y_pixel, int pixels) {
    const hn::Half<D> half;
    const auto low = hn::LowerHalf(half, outputs), high = hn::UpperHalf(half, outputs);
    if constexpr (kVectors == 2) {
      hn::StoreU(low, half, y);
      if (pixels > 1) hn::StoreU(high, half, y + y_pixel);
    } else {
      const hn::Half<decltype(half)> quad;
      hn::StoreU(hn::LowerHalf(quad, low), quad, y);
      if (pixels > 1) hn::StoreU(hn::UpperHalf(quad, low), quad, y + y_pixel);
      if (pixels > 2) hn::StoreU(hn::LowerHalf(quad, high), quad, y + 2 * y_pixel);
      if (pixels > 3) hn::StoreU(hn::UpperHalf(quad, high), quad, y + 3 * y_pixel);
    }
  }

  template <DType kType>
  static HWY_INLINE void finish(const NarrowGroupsCall& call, const Sums& sum, std::int64_t first_output) {
    const QuadD d;
    auto* y = static_cast<Storage<kType>*>(call.y) + first_output;
    const QuadV least = hn::Set(d, call.least), none = hn::Zero(d);
    HWY_ALIGN static constexpr std::int32_t kOrder[kQuadLanes] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const auto order = hn::SetTableIndices(d, kOrder);
    HWY_UNROLL(14) for (int p = 0; p < kPixels; p += kStored) {
      QuadV four[4];
      HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
        four[i] = p * kVectors + i < kPixels * kVectors ? sum[p * kVectors + i] : none;
      }
      const QuadV sums = hn::TableLookupLanes(add_quarters(four[0], four[1], four[2], four[3]), order);
      const QuadV outputs = at_least(d, least, sums);
      if constexpr (kType == DType::f32) {
        store(d, outputs, y + p * call.y_pixel, call.y_pixel, kPixels - p);
      } else {
        store(HalfTag<QuadD>(), from_f32<kType>(d, outputs), y + p * call.y_pixel, call.y_pixel, kPixels - p);
      }
    }
  }

  static void run(const NarrowGroupsCall& call) {
    constexpr int kOutputs = kVectors * kQuad;
    const QuadD d;
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
      prefetch_for_writing(static_cast<const float*>(advance(call.y, call.y_type, p * call.y_pixel)));
    }
    for (int group = 0; group < call.valid / kOutputs; ++group) {
      Sums sum;
      QuadV bias[kVectors];
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
        bias[v] = hn::LoadU(d, call.bias + (group * kVectors + v) * kQuadLanes);
      }
      HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
        HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sum[p * kVectors + v] = bias[v];
      }
      const std::int64_t weights = group * call.runs * call.steps * kVectors * kQuadLanes;
      add_taps(call, group * call.steps * kQuad, call.weights + weights, sum);
      if (HWY_LIKELY(call.y_type == DType::f32)) {
        finish<DType::f32>(call, sum, group * kOutputs);
      } else if (call.y_type == DType::f16) {
        finish<DType::f16>(call, sum, group * kOutputs);
      } else {
        finish<DType::bf16>(call, sum, group * kOutputs);
      }
    }
  }
};

template <int kVectors, int kPixels = kMaxQuadsPixels>
void fill_quads_tiles(NarrowGroupsKernels& kernels) {
  kernels.tile[kPixels] = &QuadsTile<kPixels, kVectors>::run;
  if constexpr (kPixels > 1) fill_quads_tiles<kVectors, kPixels - 1>(kernels);
}

#endif

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_QUADS_INL_H_
