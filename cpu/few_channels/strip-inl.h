// How a strip is filled: image rows to f32, with their padding, as planes or as a copy (few_channels_kernels.h).
#if defined(GABLE_CPU_FEW_CHANNELS_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_FEW_CHANNELS_STRIP_INL_H_
#undef GABLE_CPU_FEW_CHANNELS_STRIP_INL_H_
#else
#define GABLE_CPU_FEW_CHANNELS_STRIP_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "cpu/common/vector-inl.h"
#include "cpu/few_channels/few_channels_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// planes[c][i] = x[i * x_px + c], in blocks of four pixels by four channels; with five to seven channels the last
/// block overlaps the first.
HWY_INLINE void split_channels(const float* HWY_RESTRICT x, std::int64_t x_px, float* HWY_RESTRICT planes,
                               std::int64_t plane, std::int64_t pixels, std::int64_t channels) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const hn::Repartition<std::uint64_t, decltype(d)> dd;
  // A block of fewer than four channels reads into the next pixels; the scalar loop takes the last ones.
  const std::int64_t readable = channels < 4 ? pixels - 2 : pixels;
  for (; i + 4 <= readable; i += 4) {
    for (std::int64_t next = 0; next < channels; next += 4) {
      const std::int64_t c = channels < 4 ? 0 : std::min(next, channels - 4);
      const float* in = x + i * x_px + c;
      const auto r0 = hn::LoadU(d, in);
      const auto r1 = hn::LoadU(d, in + x_px);
      const auto r2 = hn::LoadU(d, in + 2 * x_px);
      const auto r3 = hn::LoadU(d, in + 3 * x_px);
      const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
      float* out = planes + c * plane + i;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, out);
      if (channels > 1) hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, out + plane);
      if (channels > 2) hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, out + 2 * plane);
      if (channels > 3) hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, out + 3 * plane);
    }
  }
#endif
  for (; i < pixels; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) planes[c * plane + i] = x[i * x_px + c];
  }
}

/// One image row of `channels` interleaved channels, or one plane's row, into its phases.
template <DType kType>
HWY_INLINE void fill_strip_row(const FewStripCall& call, const Storage<kType>* x, std::int64_t channels, float* strip) {
  const bool plain = channels == 1 && call.phases == 1;
  const float* source = nullptr;
  if constexpr (kType == DType::f32) {
    source = x;
  } else {
    if (!plain) convert_to_f32<kType>(x, call.row, call.image.width * channels);
    source = call.row;
  }
  for (std::int64_t phase = 0; phase < call.phases; ++phase) {
    // Columns [begin, end) of the phase come from source columns column, column + phases, …
    const std::int64_t shift = call.pad_left - phase;
    const std::int64_t begin = std::clamp<std::int64_t>(ceil_div(shift, call.phases), 0, call.columns);
    const std::int64_t end =
        std::clamp<std::int64_t>(ceil_div(shift + call.image.width, call.phases), begin, call.columns);
    const std::int64_t column = begin * call.phases - shift;
    float* out = strip + phase * call.pitch;
    if (plain) {
      convert_to_f32<kType>(x + column, out + begin, end - begin);
    } else {
      split_channels(source + column * channels, call.phases * channels, out + begin, call.phases * call.pitch,
                     end - begin, channels);
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      float* plane = out + c * call.phases * call.pitch;
      std::fill(plane, plane + begin, 0.0f);
      std::fill(plane + end, plane + call.columns, 0.0f);
    }
  }
}

template <DType kType, bool kSplit>
void fill_strip(const FewStripCall& call) {
  const std::int64_t plane = call.phases * call.pitch;
  for (std::int64_t i = 0; i < call.rows; ++i) {
    const std::int64_t row = call.first_row + i;
    float* strip = call.strip + i * call.image.channels * plane;
    if (row < 0 || row >= call.image.height) {
      for (std::int64_t of_plane = 0; of_plane < call.image.channels * call.phases; ++of_plane)
        std::fill_n(strip + of_plane * call.pitch, call.columns, 0.0f);
      continue;
    }
    const Storage<kType>* x = static_cast<const Storage<kType>*>(call.image.data) + row * call.image.row_stride;
    if constexpr (kSplit) {
      fill_strip_row<kType>(call, x, call.image.channels, strip);
    } else {
      for (std::int64_t c = 0; c < call.image.channels; ++c) {
        fill_strip_row<kType>(call, x + c * call.image.channel_stride, 1, strip + c * plane);
      }
    }
  }
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_FEW_CHANNELS_STRIP_INL_H_
