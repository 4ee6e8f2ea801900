// Finishes results that the tile kernel cannot store itself (NCHW, f16 and bf16, tanh, a pool other than 2×2 with
// stride 2): max-pool, bias and activation over an f32 strip in L1 or L2, then conversion and layout. The kernel works
// on blocks of 32 pixels × up to 128 lanes: 16 KB pixel-major, and 16 KB lane-major for NCHW, both in L1.
#if defined(GABLE_CPU_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_STORE_INL_H_
#undef GABLE_CPU_STORE_INL_H_
#else
#define GABLE_CPU_STORE_INL_H_
#endif

#include <algorithm>

#include "cpu/common/strips.h"
#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// Max over one window, then bias and activation, of one vector of lanes.
template <class D>
HWY_INLINE hn::Vec<D> pooled_vector(D d, const StoreCall& call, const float* window, const float* bias) {
  auto best = hn::LoadU(d, window);
  for (std::int64_t row = 0; row < call.epilogue.pool.h; ++row) {
    for (std::int64_t column = row == 0 ? 1 : 0; column < call.epilogue.pool.w; ++column) {
      best = nan_max(d, best, hn::LoadU(d, window + row * call.strip.row + column * call.strip.px));
    }
  }
  if (bias != nullptr) best = hn::Add(best, hn::LoadU(d, bias));
  if (call.epilogue.activation == Activation::relu) best = relu(d, best);
  if (call.epilogue.activation == Activation::tanh) best = tanh_f32(d, best);
  return best;
}

/// Finishes `pixels` output pixels into block[pixel][padded lanes], which are whole vectors of D.
template <class D>
HWY_INLINE void finish_pixels(D d, const StoreCall& call, const float* strip, std::int64_t pixels) {
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    const float* window = strip + pixel * call.epilogue.pool.stride_w * call.strip.px;
    float* out = call.block + pixel * call.strip.padded_lanes;
    for (int lane = 0; lane < call.strip.padded_lanes; lane += lanes) {
      const float* bias = call.epilogue.bias == nullptr ? nullptr : call.epilogue.bias + lane;
      hn::StoreU(pooled_vector(d, call, window + lane, bias), d, out + lane);
    }
  }
}

HWY_INLINE void finish_block(const StoreCall& call, const float* strip, std::int64_t pixels) {
  const hn::ScalableTag<float> d;
#if HWY_TARGET == HWY_AVX3
  // Half a vector of lanes: a whole one would read lanes that nobody wrote.
  if (call.strip.padded_lanes % static_cast<int>(hn::Lanes(d)) != 0) {
    return finish_pixels(hn::Half<hn::ScalableTag<float>>(), call, strip, pixels);
  }
#endif
  finish_pixels(d, call, strip, pixels);
}

template <DType kType, bool kNhwc>
void store_strip(const StoreCall& call) {
  for (std::int64_t row = 0; row < call.output.rows; ++row) {
    for (std::int64_t pixel = 0; pixel < call.output.pixels; pixel += kStoreBlockPixels) {
      const std::int64_t count = std::min<std::int64_t>(kStoreBlockPixels, call.output.pixels - pixel);
      finish_block(call,
                   call.strip.first + row * call.epilogue.pool.stride_h * call.strip.row +
                       pixel * call.epilogue.pool.stride_w * call.strip.px,
                   count);
      Storage<kType>* y = static_cast<Storage<kType>*>(call.output.y) + row * call.output.row + pixel * call.output.px;
      if constexpr (kNhwc) {
        for (std::int64_t i = 0; i < count; ++i) {
          convert_from_f32<kType>(call.block + i * call.strip.padded_lanes, y + i * call.output.px, call.output.lanes);
        }
      } else {
        float* lane_major = call.block + kStoreBlockFloats;
        transpose_32bit(call.block, call.strip.padded_lanes, lane_major, kStoreBlockPixels, count, call.output.lanes);
        for (std::int64_t lane = 0; lane < call.output.lanes; ++lane) {
          convert_from_f32<kType>(lane_major + lane * kStoreBlockPixels, y + lane * call.output.channel, count);
        }
      }
    }
  }
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_STORE_INL_H_
