// The few-channel tile whose lanes are pixels of a row, and how its planes become NHWC outputs.
// Tile: 4 rows x 6 channels of one vector of pixels (2 rows where there are 16 registers). Strip, weights and planes in
// L1.
// Inner step: one tap of one channel, 4 unaligned vectors of inputs and 6 broadcast weights for 24 FMA: 12 cycles where
// the loads need 7.
#if defined(GABLE_CPU_FEW_CHANNELS_PIXEL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_FEW_CHANNELS_PIXEL_LANES_INL_H_
#undef GABLE_CPU_FEW_CHANNELS_PIXEL_LANES_INL_H_
#else
#define GABLE_CPU_FEW_CHANNELS_PIXEL_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "cpu/few_channels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kFewPixelLanesRows = 4;
#else
constexpr int kFewPixelLanesRows = 2;
#endif

/// Maxima of neighbouring lanes: those of a in the lower half, those of b in the upper half.
HWY_INLINE FewV pool_lanes(FewV a, FewV b) {
  const FewD d;
#if HWY_TARGET == HWY_SCALAR
  return nan_max(d, a, b);
#else
  return nan_max(d, hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

/// The sums of kChannels channels of one vector of pixels.
template <int kChannels>
HWY_INLINE void pixel_lanes_sums(const FewTileCall& tile, const float* weights, const float* bias, std::int64_t pixel,
                                 FewV (&sum)[kFewPixelLanesRows][kChannels]) {
  const FewD d;
  HWY_UNROLL(6) for (int c = 0; c < kChannels; ++c) {
    HWY_UNROLL(4) for (int row = 0; row < kFewPixelLanesRows; ++row) sum[row][c] = hn::Set(d, bias[c]);
  }
  for (std::int64_t step = 0; step < tile.runs; ++step, weights += kChannels) {
    const float* x = tile.x + pixel + tile.offsets[step];
    FewV input[kFewPixelLanesRows];
    HWY_UNROLL(4) for (int row = 0; row < kFewPixelLanesRows; ++row) input[row] = hn::LoadU(d, x + row * tile.x_row);
    HWY_UNROLL(6) for (int c = 0; c < kChannels; ++c) {
      const FewV w = hn::Set(d, weights[c]);
      HWY_UNROLL(4)
      for (int row = 0; row < kFewPixelLanesRows; ++row) sum[row][c] = add_product(d, input[row], w, sum[row][c]);
    }
  }
}

template <int kChannels, bool kPool>
HWY_INLINE void pixel_lanes_channels(const FewPixelLanesCall& call, std::int64_t first) {
  const FewD d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* weights = call.tile.weights + first * call.tile.runs;
  const std::int64_t plane_row = call.channels * call.pitch;
  for (std::int64_t pixel = 0; pixel < call.pixels; pixel += kPool && lanes == 1 ? 2 : lanes) {
    FewV sum[kFewPixelLanesRows][kChannels];
    pixel_lanes_sums<kChannels>(call.tile, weights, call.tile.bias + first, pixel, sum);
#if HWY_TARGET == HWY_SCALAR
    FewV neighbour[kFewPixelLanesRows][kChannels];
    if constexpr (kPool) pixel_lanes_sums<kChannels>(call.tile, weights, call.tile.bias + first, pixel + 1, neighbour);
#endif
    HWY_UNROLL(6) for (int c = 0; c < kChannels; ++c) {
      float* plane = call.planes + (first + c) * call.pitch + (kPool ? pixel / 2 : pixel);
      if constexpr (!kPool) {
        HWY_UNROLL(4)
        for (int row = 0; row < kFewPixelLanesRows; ++row) hn::StoreU(sum[row][c], d, plane + row * plane_row);
#if HWY_TARGET == HWY_SCALAR
      } else {
        HWY_UNROLL(2) for (int row = 0; row < kFewPixelLanesRows; row += 2) {
          hn::StoreU(pool_lanes(nan_max(d, sum[row][c], sum[row + 1][c]),
                                nan_max(d, neighbour[row][c], neighbour[row + 1][c])),
                     d, plane + row / 2 * plane_row);
        }
#else
      } else if constexpr (kFewPixelLanesRows == 2) {
        const FewV best = nan_max(d, sum[0][c], sum[1][c]);
        const hn::Half<FewD> half;
        hn::StoreU(hn::LowerHalf(half, pool_lanes(best, best)), half, plane);
      } else {
        const FewV best = pool_lanes(nan_max(d, sum[0][c], sum[1][c]), nan_max(d, sum[2][c], sum[3][c]));
        const hn::Half<FewD> half;
        hn::StoreU(hn::LowerHalf(half, best), half, plane);
        hn::StoreU(hn::UpperHalf(half, best), half, plane + plane_row);
#endif
      }
    }
  }
}

template <bool kPool>
void pixel_lanes_rows(const FewPixelLanesCall& call) {
  std::int64_t channels = 0;
  for (std::int64_t first = 0; first < call.channels; first += channels) {
    channels = next_block_channels(call.channels - first);
    switch (channels) {
      case 1:
        pixel_lanes_channels<1, kPool>(call, first);
        break;
      case 2:
        pixel_lanes_channels<2, kPool>(call, first);
        break;
      case 3:
        pixel_lanes_channels<3, kPool>(call, first);
        break;
      case 4:
        pixel_lanes_channels<4, kPool>(call, first);
        break;
      case 5:
        pixel_lanes_channels<5, kPool>(call, first);
        break;
      default:
        pixel_lanes_channels<6, kPool>(call, first);
    }
  }
}

// A vector of pixels of C channels becomes C vectors of interleaved values. Value i of them is channel i % C of pixel
// i / C: the permutation is the same for every channel, and the channel's lanes are picked from it.
void interleave(const FewInterleaveCall& call) {
  const FewD d;
  const hn::RebindToSigned<FewD> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto channels = static_cast<std::int32_t>(call.channels);
  for (std::int64_t pixel = 0; pixel < call.pixels; pixel += lanes) {
    const std::int64_t values = std::min(lanes, call.pixels - pixel) * channels;
    for (std::int64_t i = 0; i < values; i += lanes) {
      const auto permutation = hn::SetTableIndices(d, call.pixel_of + i);
      const auto owner = hn::LoadU(di, call.channel_of + i);
      FewV mixed = hn::TableLookupLanes(hn::LoadU(d, call.planes + pixel), permutation);
      for (std::int32_t c = 1; c < channels; ++c) {
        const FewV plane = hn::LoadU(d, call.planes + c * call.pitch + pixel);
        const auto owned = hn::RebindMask(d, hn::Eq(owner, hn::Set(di, c)));
        mixed = hn::IfThenElse(owned, hn::TableLookupLanes(plane, permutation), mixed);
      }
      hn::StoreU(mixed, d, call.y + pixel * channels + i);
    }
  }
}

template <DType kType>
void finish(const FewFinishCall& call) {
  const FewD d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto* y = static_cast<Storage<kType>*>(call.y);
  const auto part = [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    const FewV value = activate(call.activation, load_first(d, call.x + i, static_cast<int>(count)));
    store_first_f32_as<kType>(d, value, y + i, static_cast<int>(count));
  };
  std::int64_t i = 0;
  for (; i + lanes <= call.count; i += lanes) {
    store_f32_as<kType>(d, activate(call.activation, hn::LoadU(d, call.x + i)), y + i);
  }
  if (i < call.count) part(i, call.count - i);
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_FEW_CHANNELS_PIXEL_LANES_INL_H_
