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
  for (std::int64_t row = 0; row < call.pool_h; ++row) {
    for (std::int64_t column = row == 0 ? 1 : 0; column < call.pool_w; ++column) {
      best = nan_max(d, best, hn::LoadU(d, window + row * call.strip_row + column * call.strip_px));
    }
  }
  if (bias != nullptr) best = hn::Add(best, hn::LoadU(d, bias));
  if (call.activation == Activation::relu) best = relu(d, best);
  if (call.activation == Activation::tanh) best = tanh_f32(d, best);
  return best;
}

/// Finishes `pixels` output pixels into block[pixel][padded lanes].
HWY_INLINE void finish_block(const StoreCall& call, const float* strip, std::int64_t pixels) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    const float* window = strip + pixel * call.pool_stride_w * call.strip_px;
    float* out = call.block + pixel * call.padded_lanes;
    for (int lane = 0; lane < call.padded_lanes; lane += lanes) {
      const float* bias = call.bias == nullptr ? nullptr : call.bias + lane;
      hn::StoreU(pooled_vector(d, call, window + lane, bias), d, out + lane);
    }
  }
}

template <DType kType, bool kNhwc>
void store_strip(const StoreCall& call) {
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for (std::int64_t pixel = 0; pixel < call.pixels; pixel += kStoreBlockPixels) {
      const std::int64_t count = std::min<std::int64_t>(kStoreBlockPixels, call.pixels - pixel);
      finish_block(call,
                   call.strip + row * call.pool_stride_h * call.strip_row + pixel * call.pool_stride_w * call.strip_px,
                   count);
      Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + row * call.y_row + pixel * call.y_px;
      if constexpr (kNhwc) {
        for (std::int64_t i = 0; i < count; ++i) {
          convert_from_f32<kType>(call.block + i * call.padded_lanes, y + i * call.y_px, call.lanes);
        }
      } else {
        float* lane_major = call.block + kStoreBlockFloats;
        transpose_32bit(call.block, call.padded_lanes, lane_major, kStoreBlockPixels, count, call.lanes);
        for (std::int64_t lane = 0; lane < call.lanes; ++lane) {
          convert_from_f32<kType>(lane_major + lane * kStoreBlockPixels, y + lane * call.y_channel, count);
        }
      }
    }
  }
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_STORE_INL_H_
