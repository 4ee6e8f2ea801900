// See depthwise_planes_kernels.h. A row's last vector is masked, so that it writes zeros past the row's end; its pitch
// has room for them.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise/depthwise_planes_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_planes_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "cpu/common/half.h"
#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

template <DType kType>
struct DepthwisePlanes {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;

  static HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

  /// The first `count` elements, at most a vector, and zeros.
  static HWY_INLINE V load_part(const T* x, const T* x_end, std::int64_t count) {
    const D d;
    if (count <= 0) return hn::Zero(d);
    if (HWY_UNLIKELY(x + lanes() > x_end))
      return load_first_as_f32<kType>(d, x, static_cast<int>(std::min(count, lanes())));
    return hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), load_as_f32<kType>(d, x));
  }

  static HWY_INLINE void stage_dense(const PlaneRows& call, const T* x, const T* x_end, float* row) {
    const D d;
    std::int64_t i = 0;
    for (; i + lanes() <= call.width; i += lanes()) hn::StoreU(load_as_f32<kType>(d, x + i), d, row + i);
    if (i < call.width) hn::StoreU(load_part(x + i, x_end, call.width - i), d, row + i);
  }

  /// Columns j of the image to phase (j + pad) % 2.
  static HWY_INLINE void stage_pairs(const PlaneRows& call, const T* x, const T* x_end, float* row) {
#if HWY_TARGET == HWY_SCALAR
    (void)x_end;
    stage_apart(call, x, row);
#else
    const D d;
    const bool swapped = call.pad_left % 2 == 1;
    float* even = row + call.pad_left / 2 + (swapped ? call.phase_floats : 0);
    float* odd = row + (call.pad_left + 1) / 2 + (swapped ? 0 : call.phase_floats);
    for (std::int64_t i = 0; i < call.width; i += 2 * lanes()) {
      V low, high;
      if (i + 2 * lanes() <= call.width) {
        low = load_as_f32<kType>(d, x + i);
        high = load_as_f32<kType>(d, x + i + lanes());
      } else {
        low = load_part(x + i, x_end, call.width - i);
        high = load_part(x + i + lanes(), x_end, call.width - i - lanes());
      }
      hn::StoreU(hn::ConcatEven(d, high, low), d, even + i / 2);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, odd + i / 2);
    }
#endif
  }

  static HWY_INLINE void stage_apart(const PlaneRows& call, const T* x, float* row) {
    for (std::int64_t j = 0; j < call.width; ++j) {
      const std::int64_t padded = j + call.pad_left;
      row[padded % call.stride * call.phase_floats + padded / call.stride] = element_as_f32(x, kType, j);
    }
  }

  /// Rows of at most a vector: small images, where loops within a row would cost more than the row.
  static HWY_INLINE void stage_short(const PlaneRows& call, const T* x, const T* x_end) {
    const D d;
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(call.width));
    float* row = call.strip + call.pad_left;
    std::int64_t i = 0;
    for (; i < call.rows && x + lanes() <= x_end; ++i, x += call.width, row += call.pitch) {
      hn::StoreU(hn::IfThenElseZero(valid, load_as_f32<kType>(d, x)), d, row);
    }
    for (; i < call.rows; ++i, x += call.width, row += call.pitch) hn::StoreU(load_part(x, x_end, call.width), d, row);
  }

  static void stage(const PlaneRows& caller) {
    const PlaneRows call = caller;
    const T* x = static_cast<const T*>(call.x);
    const T* x_end = static_cast<const T*>(call.x_end);
    if (call.stride == 1 && call.width <= lanes()) return stage_short(call, x, x_end);
    for (std::int64_t i = 0; i < call.rows; ++i, x += call.width) {
      float* row = call.strip + i * call.pitch;
      if (call.stride == 1) {
        stage_dense(call, x, x_end, row + call.pad_left);
      } else if (call.stride == 2) {
        stage_pairs(call, x, x_end, row);
      } else {
        stage_apart(call, x, row);
      }
    }
  }

  template <bool kTanh>
  static HWY_INLINE void finish_as(const PlaneResults& caller) {
    const PlaneResults call = caller;
    const D d;
    T* y = static_cast<T*>(call.y);
    const T* end = y + call.rows * call.width;
    const T* limit = static_cast<const T*>(call.y_end);
    if (!kTanh && call.width <= lanes()) {
      const float* results = call.results;
      for (; y < end && y + lanes() <= limit; y += call.width, results += call.pitch) {
        store_f32_as<kType>(d, hn::LoadU(d, results), y);
      }
      for (; y < end; y += call.width, results += call.pitch) {
        store_first_f32_as<kType>(d, hn::LoadU(d, results), y, static_cast<int>(call.width));
      }
      return;
    }
    for (std::int64_t row = 0; row < call.rows; ++row, y += call.width) {
      const float* results = call.results + row * call.pitch;
      for (std::int64_t i = 0; i < call.width; i += lanes()) {
        V value = hn::LoadU(d, results + i);
        if constexpr (kTanh) value = tanh_f32(d, value);
        if (HWY_LIKELY(y + i + lanes() <= limit)) {
          store_f32_as<kType>(d, value, y + i);
        } else {
          store_first_f32_as<kType>(d, value, y + i, static_cast<int>(std::min(lanes(), call.width - i)));
        }
      }
    }
  }

  static void to_pixels(const PlaneGroup& call) {
    const T* planes = static_cast<const T*>(call.planes);
    if constexpr (kType == DType::f32) {
      transpose_32bit(planes, call.size, call.pixels, lanes(), call.count, call.size);
    } else {
      convert_to_f32<kType>(planes, call.scratch, call.count * call.size);
      transpose_32bit<float>(call.scratch, call.size, call.pixels, lanes(), call.count, call.size);
    }
  }

  static void from_pixels(const PlaneGroup& call) {
    const D d;
    if (call.tanh) {
      for (std::int64_t i = 0; i < call.size * lanes(); i += lanes()) {
        hn::Store(tanh_f32(d, hn::Load(d, call.pixels + i)), d, call.pixels + i);
      }
    }
    T* planes = static_cast<T*>(call.planes);
    if constexpr (kType == DType::f32) {
      transpose_32bit<float>(call.pixels, lanes(), planes, call.size, call.size, call.count);
    } else {
      transpose_32bit<float>(call.pixels, lanes(), call.scratch, call.size, call.size, call.count);
      convert_from_f32<kType>(call.scratch, planes, call.count * call.size);
    }
  }

  /// One product, bias and activation of a vector of pixels.
  template <bool kTanh>
  static HWY_INLINE V scaled(V x, V weight, V bias, V least) {
    const D d;
    const V value = at_least(d, least, hn::MulAdd(x, weight, bias));
    if constexpr (kTanh) return tanh_f32(d, value);
    return value;
  }

  /// Rounded to bf16 in the upper halves of the lanes.
  static HWY_INLINE auto rounded(V value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto sum = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, sum);
  }

  template <bool kTanh>
  static HWY_INLINE void scale_plane(const T* x, T* y, std::int64_t pixels, V weight, V bias, V least) {
    const D d;
    std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kType == DType::bf16) {
      // Two vectors share the operations that gather the upper halves of their lanes.
      const hn::Repartition<std::uint16_t, D> d16;
      for (; i + 2 * lanes() <= pixels; i += 2 * lanes()) {
        const V low = scaled<kTanh>(load_as_f32<kType>(d, x + i), weight, bias, least);
        const V high = scaled<kTanh>(load_as_f32<kType>(d, x + i + lanes()), weight, bias, least);
        hn::StoreU(hn::ConcatOdd(d16, hn::BitCast(d16, rounded(high)), hn::BitCast(d16, rounded(low))), d16, y + i);
      }
    }
#endif
    for (; i + lanes() <= pixels; i += lanes()) {
      store_f32_as<kType>(d, scaled<kTanh>(load_as_f32<kType>(d, x + i), weight, bias, least), y + i);
    }
    if (i == pixels) return;
    const int rest = static_cast<int>(pixels - i);
    const V last = scaled<kTanh>(load_first_as_f32<kType>(d, x + i, rest), weight, bias, least);
    store_first_f32_as<kType>(d, last, y + i, rest);
  }

  template <bool kTanh>
  static HWY_INLINE void scale_as(const ScaledPlanes& caller) {
    const ScaledPlanes call = caller;
    const D d;
    const V least = hn::Set(d, call.least);
    const T* x = static_cast<const T*>(call.x);
    T* y = static_cast<T*>(call.y);
    for (std::int64_t k = 0; k < call.planes; ++k, y += call.pixels) {
      const V bias = hn::Set(d, call.bias == nullptr ? 0.0F : call.bias[k]);
      scale_plane<kTanh>(x, y, call.pixels, hn::Set(d, call.weights[k]), bias, least);
      if ((k + 1) % call.repeats == 0) x += call.pixels;
    }
  }
  static void scale(const ScaledPlanes& call) {
    if (call.tanh) {
      scale_as<true>(call);
    } else {
      scale_as<false>(call);
    }
  }

  static void finish(const PlaneResults& call) {
    if (call.tanh) {
      finish_as<true>(call);
    } else {
      finish_as<false>(call);
    }
  }
};

void spread_weights(const float* weights, std::int64_t count, float* vectors) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; ++i) hn::Store(hn::Set(d, weights[i]), d, vectors + i * lanes);
}

template <DType kType>
void fill_planes(PlaneKernels& kernels) {
  kernels.stage[static_cast<int>(kType)] = &DepthwisePlanes<kType>::stage;
  kernels.finish[static_cast<int>(kType)] = &DepthwisePlanes<kType>::finish;
  kernels.to_pixels[static_cast<int>(kType)] = &DepthwisePlanes<kType>::to_pixels;
  kernels.from_pixels[static_cast<int>(kType)] = &DepthwisePlanes<kType>::from_pixels;
  kernels.scale[static_cast<int>(kType)] = &DepthwisePlanes<kType>::scale;
}

const PlaneKernels& depthwise_plane_kernels_here() {
  static const PlaneKernels kernels = [] {
    PlaneKernels made{};
    made.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
    made.spread = &spread_weights;
    made.transpose = &transpose_32bit<float>;
    fill_planes<DType::f32>(made);
    fill_planes<DType::f16>(made);
    fill_planes<DType::bf16>(made);
    return made;
  }();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const PlaneKernels& depthwise_plane_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, depthwise_plane_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
