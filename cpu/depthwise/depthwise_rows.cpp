// See depthwise_rows.h.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise/depthwise_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cpu/common/half.h"
#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <DType kType>
struct DepthwiseRows {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;

  static HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

  /// Calls visit(pixel, first lane, channel) for each whole vector of each pixel.
  template <class Visit>
  static HWY_INLINE void for_each_vector(std::int64_t pixels, const PixelVectors& v, const Visit& visit) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      const std::int64_t whole = (v.vectors - 1) * lanes();
      for (std::int64_t lane = 0; lane < whole; lane += lanes()) visit(pixel, lane, lane);
      visit(pixel, whole, v.last);
    }
  }

  /// Pixels of fewer channels than a vector has lanes: all of the image's. Vectors reach into the next pixels, except
  /// for those of the last ones.
  static HWY_INLINE void widen_part(const WidenCall& call, const T* x) {
    const D d;
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(call.lanes.channels));
    const std::int64_t readable = (call.pixels - 1) * call.x_step + call.lanes.channels;
    std::int64_t pixel = 0;
    for (; pixel * call.x_step + lanes() <= readable; ++pixel, x += call.x_step) {
      hn::StoreU(hn::IfThenElseZero(valid, load_as_f32<kType>(d, x)), d, call.row + pixel * call.row_step);
    }
    for (; pixel < call.pixels; ++pixel, x += call.x_step) {
      float* row = call.row + pixel * call.row_step;
      for (std::int64_t i = 0; i < call.lanes.channels; ++i) row[i] = element_as_f32(x, kType, i);
      std::fill(row + call.lanes.channels, row + lanes(), 0.0F);
    }
  }

  static void widen(const WidenCall& caller) {
    const WidenCall call = caller;
    const D d;
    const T* x = static_cast<const T*>(call.x);
    if (call.lanes.channels < lanes()) return widen_part(call, x);
    for_each_vector(call.pixels, call.lanes, [&](std::int64_t pixel, std::int64_t lane, std::int64_t channel) HWY_ATTR {
      hn::StoreU(load_as_f32<kType>(d, x + pixel * call.x_step + channel), d, call.row + pixel * call.row_step + lane);
    });
  }

  /// A vector of outputs reads a few neighbouring inputs. Each input is copied to the lanes of its outputs.
  static void widen_multiplied(const WidenCall& caller) {
    const WidenCall call = caller;
    const D d;
    const T* x = static_cast<const T*>(call.x);
    const std::int64_t count = std::min(lanes(), call.lanes.channels);
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(count));
    for (std::int64_t vector = 0; vector < call.lanes.vectors; ++vector) {
      const std::int64_t channel = vector + 1 == call.lanes.vectors ? call.lanes.last : vector * lanes();
      const std::int64_t output = call.first_of_input + channel;
      const std::int64_t first = output / call.multiplier;
      // Counted, since a division for each lane takes longer than the pixels of a short row.
      HWY_ALIGN std::int32_t sources[hn::MaxLanes(D())] = {};
      std::int64_t of_input = output - first * call.multiplier;
      std::int32_t source = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        sources[i] = source;
        if (++of_input < call.multiplier) continue;
        of_input = 0;
        ++source;
      }
      const auto from = hn::SetTableIndices(d, sources);
      const int inputs = sources[count - 1] + 1;
      for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel) {
        const V input = load_first_as_f32<kType>(d, x + pixel * call.x_step + first, inputs);
        hn::StoreU(hn::IfThenElseZero(valid, hn::TableLookupLanes(input, from)), d,
                   call.row + pixel * call.row_step + vector * lanes());
      }
    }
  }

  template <bool kTanh>
  static HWY_INLINE void narrow_as(const NarrowCall& caller) {
    const NarrowCall call = caller;
    const D d;
    T* y = static_cast<T*>(call.y);
    const auto finished = [d](V value) HWY_ATTR {
      if constexpr (kTanh) return tanh_f32(d, value);
      return value;
    };
    if (call.lanes.channels < lanes()) {
      // Vectors reach into the next pixels, which are stored later, except for those of the last ones.
      const std::int64_t writable = (call.pixels - 1) * call.y_step + call.lanes.channels;
      for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel, y += call.y_step) {
        const V value = finished(hn::LoadU(d, call.row + pixel * call.row_step));
        if (pixel * call.y_step + lanes() <= writable) {
          store_f32_as<kType>(d, value, y);
        } else {
          store_first_f32_as<kType>(d, value, y, static_cast<int>(call.lanes.channels));
        }
      }
      return;
    }
    for_each_vector(call.pixels, call.lanes, [&](std::int64_t pixel, std::int64_t lane, std::int64_t channel) HWY_ATTR {
      const V value = finished(hn::LoadU(d, call.row + pixel * call.row_step + lane));
      store_f32_as<kType>(d, value, y + pixel * call.y_step + channel);
    });
  }

  static void narrow(const NarrowCall& call) {
    if (call.tanh) {
      narrow_as<true>(call);
    } else {
      narrow_as<false>(call);
    }
  }
};

/// The last vector of a pixel overlaps the one before it where they do not divide its bytes. The last block of channels
/// in 16 bits may have fewer bytes than a vector.
void copy_pixels(const CopyCall& caller) {
  const CopyCall call = caller;
  const hn::ScalableTag<std::uint8_t> d;
  const auto vector = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* x = reinterpret_cast<const std::uint8_t*>(call.x);
  auto* row = reinterpret_cast<std::uint8_t*>(call.row);
  const std::int64_t last = call.bytes - vector;
  constexpr std::int64_t kAhead = 2;  // pixels that are prefetched
  if (last < 0) {
    for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel, x += call.x_step, row += call.row_step) {
      std::memcpy(row, x, static_cast<std::size_t>(call.bytes));
    }
    return;
  }
  for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel, x += call.x_step, row += call.row_step) {
    for (std::int64_t at = 0; at < last; at += vector) {
      __builtin_prefetch(x + at + kAhead * call.x_step);
      hn::StoreU(hn::LoadU(d, x + at), d, row + at);
    }
    hn::StoreU(hn::LoadU(d, x + last), d, row + last);
  }
}

template <DType kType>
void fill_rows(RowKernels& kernels) {
  kernels.widen[static_cast<int>(kType)] = &DepthwiseRows<kType>::widen;
  kernels.widen_multiplied[static_cast<int>(kType)] = &DepthwiseRows<kType>::widen_multiplied;
  kernels.narrow[static_cast<int>(kType)] = &DepthwiseRows<kType>::narrow;
}

const RowKernels& depthwise_row_kernels_here() {
  static const RowKernels kernels = [] {
    RowKernels made{};
    fill_rows<DType::f32>(made);
    fill_rows<DType::f16>(made);
    fill_rows<DType::bf16>(made);
    made.copy = &copy_pixels;
    return made;
  }();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const RowKernels& depthwise_row_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, depthwise_row_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
