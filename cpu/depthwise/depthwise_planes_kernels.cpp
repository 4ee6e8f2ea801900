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
#include <type_traits>

#include "cpu/common/half.h"
#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// A matrix in memory.
template <class T>
struct Rows {
  const T* first;
  std::int64_t stride;  // between two rows
  std::int64_t count, columns;
};

/// The first `count` rows, at most four, to as many columns. Of four columns the rest repeats the last row.
template <DType kFrom, DType kTo>
HWY_INLINE void transpose_block(const Storage<kFrom>* x, std::int64_t x_stride, std::int64_t count, Storage<kTo>* y,
                                std::int64_t y_stride) {
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const hn::Repartition<std::uint64_t, decltype(d)> dd;
  const std::int64_t last = (count - 1) * x_stride;
  const auto r0 = load_as_f32<kFrom>(d, x), r1 = load_as_f32<kFrom>(d, x + std::min(last, x_stride));
  const auto r2 = load_as_f32<kFrom>(d, x + std::min(last, 2 * x_stride));
  const auto r3 = load_as_f32<kFrom>(d, x + std::min(last, 3 * x_stride));
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  store_f32_as<kTo>(d, hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), y);
  store_f32_as<kTo>(d, hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), y + y_stride);
  store_f32_as<kTo>(d, hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), y + 2 * y_stride);
  store_f32_as<kTo>(d, hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), y + 3 * y_stride);
#endif
}

#if HWY_TARGET != HWY_SCALAR
/// Eight rows of eight elements of 16 bits, of which each becomes a column.
struct Block16 {
  using D16 = hn::CappedTag<std::uint16_t, 8>;
  using V16 = hn::Vec<D16>;
  V16 columns[8];

  HWY_INLINE Block16(const std::uint16_t* x, std::int64_t stride) {
    const D16 d;
    const hn::Repartition<std::uint32_t, D16> dd;
    const hn::Repartition<std::uint64_t, D16> dq;
    hn::Vec<decltype(dd)> pairs[8];  // of rows 2i and 2i + 1: columns 0 to 3 at i, 4 to 7 at 4 + i
    HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
      const V16 even = hn::LoadU(d, x + 2 * i * stride), odd = hn::LoadU(d, x + (2 * i + 1) * stride);
      pairs[i] = hn::BitCast(dd, hn::InterleaveLower(d, even, odd));
      pairs[4 + i] = hn::BitCast(dd, hn::InterleaveUpper(d, even, odd));
    }
    HWY_UNROLL(2) for (int half = 0; half < 2; ++half) {
      const auto* p = pairs + 4 * half;
      const auto top_low = hn::BitCast(dq, hn::InterleaveLower(dd, p[0], p[1]));
      const auto top_high = hn::BitCast(dq, hn::InterleaveUpper(dd, p[0], p[1]));
      const auto bottom_low = hn::BitCast(dq, hn::InterleaveLower(dd, p[2], p[3]));
      const auto bottom_high = hn::BitCast(dq, hn::InterleaveUpper(dd, p[2], p[3]));
      columns[4 * half] = hn::BitCast(d, hn::InterleaveLower(dq, top_low, bottom_low));
      columns[4 * half + 1] = hn::BitCast(d, hn::InterleaveUpper(dq, top_low, bottom_low));
      columns[4 * half + 2] = hn::BitCast(d, hn::InterleaveLower(dq, top_high, bottom_high));
      columns[4 * half + 3] = hn::BitCast(d, hn::InterleaveUpper(dq, top_high, bottom_high));
    }
  }
};

/// From planes to pixels of f32, or from pixels to planes without a conversion.
template <DType kType, class To>
HWY_INLINE void transpose_16bit_block(const std::uint16_t* x, std::int64_t x_stride, To* y, std::int64_t y_stride) {
  const Block16 block(x, x_stride);
  HWY_UNROLL(8) for (int i = 0; i < 8; ++i) {
    if constexpr (sizeof(To) == sizeof(std::uint16_t)) {
      hn::StoreU(block.columns[i], Block16::D16(), y + i * y_stride);
    } else {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
      const hn::CappedTag<float, 8> d;
      hn::StoreU(to_f32<kType>(d, block.columns[i]), d, y + i * y_stride);
#else
      const hn::CappedTag<float, 4> d;
      hn::StoreU(to_f32<kType>(d, hn::LowerHalf(block.columns[i])), d, y + i * y_stride);
      hn::StoreU(to_f32<kType>(d, hn::UpperHalf(HalfTag<decltype(d)>(), block.columns[i])), d, y + i * y_stride + 4);
#endif
    }
  }
}
#endif

/// y[column * y_stride + row] = x, of a 16-bit type. Blocks that would reach beyond the last row or column begin
/// earlier. False: the matrix is smaller than a block.
template <DType kType, class To>
HWY_INLINE bool transpose_16bit(const Rows<std::uint16_t>& x, To* y, std::int64_t y_stride) {
#if HWY_TARGET != HWY_SCALAR
  if (x.count < 8 || x.columns < 8) return false;
  for (std::int64_t i = 0; i < x.count; i += 8) {
    const std::int64_t row = std::min(i, x.count - 8);
    const std::uint16_t* from = x.first + row * x.stride;
    for (std::int64_t j = 0; j < x.columns; j += 8) {
      const std::int64_t column = std::min(j, x.columns - 8);
      transpose_16bit_block<kType>(from + column, x.stride, y + column * y_stride + row, y_stride);
    }
  }
  return true;
#else
  (void)x, (void)y, (void)y_stride;
  return false;
#endif
}

/// y[column * y_stride + row] = x, converted. Blocks that would reach beyond the last row or column begin earlier.
template <DType kFrom, DType kTo>
HWY_INLINE void transpose_converted(const Rows<Storage<kFrom>>& x, Storage<kTo>* y, std::int64_t y_stride) {
#if HWY_TARGET != HWY_SCALAR
  const bool has_room = kFrom != DType::f32 && kTo == DType::f32;  // pixels have a vector's lanes, however few planes
  if ((x.count >= 4 || has_room) && x.columns >= 4) {
    const std::int64_t rows = std::min<std::int64_t>(x.count, 4);
    for (std::int64_t i = 0; i < x.count; i += 4) {
      const std::int64_t row = std::min(i, x.count - rows);
      const Storage<kFrom>* from = x.first + row * x.stride;
      for (std::int64_t j = 0; j < x.columns; j += 4) {
        const std::int64_t column = std::min(j, x.columns - 4);
        transpose_block<kFrom, kTo>(from + column, x.stride, rows, y + column * y_stride + row, y_stride);
      }
    }
    return;
  }
#endif
  const hn::CappedTag<float, 1> d;
  for (std::int64_t row = 0; row < x.count; ++row) {
    for (std::int64_t column = 0; column < x.columns; ++column) {
      const float value = element_as_f32(x.first, kFrom, row * x.stride + column);
      store_f32_as<kTo>(d, hn::Set(d, value), y + column * y_stride + row);
    }
  }
}

/// Rows of images to strips of f32 or, unconverted, of their own type, in vectors of as many elements as a vector of
/// f32 has.
template <DType kType, DType kStrip>
struct StagedRows {
  static_assert(kStrip == DType::f32 || kStrip == kType);
  static constexpr bool kConverts = kStrip == DType::f32;
  using D = std::conditional_t<kConverts, hn::ScalableTag<float>, HalfTag<hn::ScalableTag<float>>>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;
  using Element = Storage<kStrip>;

  static HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

  static HWY_INLINE V load(const T* x) {
    if constexpr (kConverts) return load_as_f32<kType>(D(), x);
    if constexpr (!kConverts) return hn::LoadU(D(), x);
  }

  /// The first `count` elements, at most a vector, and zeros.
  static HWY_INLINE V load_part(const T* x, const T* x_end, std::int64_t count) {
    const D d;
    if (count <= 0) return hn::Zero(d);
    if (HWY_UNLIKELY(x + lanes() > x_end)) {
      const int first = static_cast<int>(std::min(count, lanes()));
      if constexpr (kConverts) return load_first_as_f32<kType>(d, x, first);
      if constexpr (!kConverts) return load_first(d, x, first);
    }
    return hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), load(x));
  }

  static HWY_INLINE void stage_dense(const PlaneRows& call, const T* x, const T* x_end, Element* row) {
    const D d;
    std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (!kConverts) {
      const hn::ScalableTag<Element> pair;
      for (; i + 2 * lanes() <= call.width; i += 2 * lanes()) hn::StoreU(hn::LoadU(pair, x + i), pair, row + i);
    }
#endif
    for (; i + lanes() <= call.width; i += lanes()) hn::StoreU(load(x + i), d, row + i);
    if (i < call.width) hn::StoreU(load_part(x + i, x_end, call.width - i), d, row + i);
  }

  /// Columns j of the image to phase (j + pad) % 2.
  static HWY_INLINE void stage_pairs(const PlaneRows& call, const T* x, const T* x_end, Element* row) {
#if HWY_TARGET == HWY_SCALAR
    (void)x_end;
    stage_apart(call, x, row);
#else
    const D d;
    const bool swapped = call.pad_left % 2 == 1;
    Element* even = row + call.pad_left / 2 + (swapped ? call.phase_elements : 0);
    Element* odd = row + (call.pad_left + 1) / 2 + (swapped ? 0 : call.phase_elements);
    for (std::int64_t i = 0; i < call.width; i += 2 * lanes()) {
      V low, high;
      if (i + 2 * lanes() <= call.width) {
        low = load(x + i);
        high = load(x + i + lanes());
      } else {
        low = load_part(x + i, x_end, call.width - i);
        high = load_part(x + i + lanes(), x_end, call.width - i - lanes());
      }
      hn::StoreU(hn::ConcatEven(d, high, low), d, even + i / 2);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, odd + i / 2);
    }
#endif
  }

  /// Where column `first` of the image lies in a row of the strip, with the other columns of its phase behind it.
  static HWY_INLINE Element* phase_of(const PlaneRows& call, std::int64_t first, Element* row) {
    const std::int64_t padded = first + call.pad_left;
    return row + padded % call.stride * call.phase_elements + padded / call.stride;
  }

#if HWY_TARGET != HWY_SCALAR
  /// All columns of a row but fewer than kStride at its end, in vectors of at most kLanes elements of a phase; the last
  /// one overlaps the one before. Returns the columns that it took: none of a row that is too short.
  template <int kStride, std::size_t kLanes>
  static HWY_INLINE std::int64_t stage_phases(const PlaneRows& call, const T* x, Element* row) {
    const hn::CappedTag<float, kLanes> d;
    const std::conditional_t<kType == DType::f32, hn::CappedTag<float, kLanes>, HalfTag<hn::CappedTag<float, kLanes>>>
        of_image;
    const auto count = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t phase_columns = call.width / kStride;
    if (phase_columns < count) {
      if constexpr (kLanes > 4) return stage_phases<kStride, kLanes / 2>(call, x, row);
      return 0;
    }
    Element* to[kStride];
    for (int phase = 0; phase < kStride; ++phase) to[phase] = phase_of(call, phase, row);
    for (std::int64_t first = 0; first < phase_columns; first += count) {
      const std::int64_t at = std::min(first, phase_columns - count);
      hn::Vec<decltype(of_image)> elements[4];
      if constexpr (kStride == 3) {
        hn::LoadInterleaved3(of_image, x + kStride * at, elements[0], elements[1], elements[2]);
      } else {
        hn::LoadInterleaved4(of_image, x + kStride * at, elements[0], elements[1], elements[2], elements[3]);
      }
      for (int phase = 0; phase < kStride; ++phase) {
        if constexpr (kConverts && kType != DType::f32) {
          hn::StoreU(to_f32<kType>(d, elements[phase]), d, to[phase] + at);
        } else {
          hn::StoreU(elements[phase], of_image, to[phase] + at);
        }
      }
    }
    return phase_columns * kStride;
  }
#endif

  static HWY_INLINE void stage_apart(const PlaneRows& call, const T* x, Element* row) {
    std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
    constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
    if (call.stride == 3) done = stage_phases<3, kLanes>(call, x, row);
    if (call.stride == 4) done = stage_phases<4, kLanes>(call, x, row);
#endif
    for (std::int64_t first = done; first < done + call.stride; ++first) {  // columns of one phase, from left to right
      Element* to = phase_of(call, first, row);
      for (std::int64_t j = first; j < call.width; j += call.stride, ++to) {
        if constexpr (kConverts) *to = element_as_f32(x, kType, j);
        if constexpr (!kConverts) *to = x[j];
      }
    }
  }

  /// Rows of at most a vector: small images, where loops within a row would cost more than the row.
  static HWY_INLINE void stage_short(const PlaneRows& call, const T* x, const T* x_end) {
    const D d;
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(call.width));
    Element* row = static_cast<Element*>(call.strip) + call.pad_left;
    std::int64_t i = 0;
    for (; i < call.rows && x + lanes() <= x_end; ++i, x += call.width, row += call.pitch) {
      hn::StoreU(hn::IfThenElseZero(valid, load(x)), d, row);
    }
    for (; i < call.rows; ++i, x += call.width, row += call.pitch) hn::StoreU(load_part(x, x_end, call.width), d, row);
  }

  static void stage(const PlaneRows& caller) {
    const PlaneRows call = caller;
    const T* x = static_cast<const T*>(call.x);
    const T* x_end = static_cast<const T*>(call.x_end);
    if (call.stride == 1 && call.width <= lanes()) return stage_short(call, x, x_end);
    for (std::int64_t i = 0; i < call.rows; ++i, x += call.width) {
      Element* row = static_cast<Element*>(call.strip) + i * call.pitch;
      if (call.stride == 1) {
        stage_dense(call, x, x_end, row + call.pad_left);
      } else if (call.stride == 2) {
        stage_pairs(call, x, x_end, row);
      } else {
        stage_apart(call, x, row);
      }
    }
  }

  /// Rows of pixels of several channels, fewer than lanes. The next pixel of a phase overwrites the zeros behind this
  /// one.
  static void stage_pixels(const PlaneRows& caller, std::int64_t channels) {
    const PlaneRows call = caller;
    const D d;
    const T* x = static_cast<const T*>(call.x);
    const T* x_end = static_cast<const T*>(call.x_end);
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(channels));
    const std::int64_t step = call.stride * channels;
    for (std::int64_t row = 0; row < call.rows; ++row, x += call.width) {
      const bool whole = x + call.width + lanes() <= x_end;
      for (std::int64_t first = 0; first < call.stride; ++first) {  // pixels of one phase, from left to right
        const std::int64_t padded = first + call.pad_left;
        Element* to = static_cast<Element*>(call.strip) + row * call.pitch +
                      padded % call.stride * call.phase_elements + padded / call.stride * channels;
        std::int64_t i = first * channels;
        if (whole) {
          for (; i < call.width; i += step, to += channels) hn::StoreU(hn::IfThenElseZero(valid, load(x + i)), d, to);
        }
        for (; i < call.width; i += step, to += channels) hn::StoreU(load_part(x + i, x_end, channels), d, to);
      }
    }
  }
};

template <DType kType>
struct DepthwisePlanes {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;

  static HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }

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
    auto* pixels = static_cast<float*>(call.pixels);
    if constexpr (kType == DType::f32) {
      transpose_32bit(planes, call.size, pixels, lanes(), call.count, call.size);
    } else {
      const Rows<T> rows{planes, call.size, call.count, call.size};
      if (!transpose_16bit<kType>(rows, pixels, lanes())) transpose_converted<kType, DType::f32>(rows, pixels, lanes());
    }
  }

  static void from_pixels(const PlaneGroup& call) {
    const D d;
    T* planes = static_cast<T*>(call.planes);
    if (call.tanh) {
      auto* pixels = static_cast<float*>(call.pixels);
      for (std::int64_t i = 0; i < call.size * lanes(); i += lanes()) {
        hn::Store(tanh_f32(d, hn::Load(d, pixels + i)), d, pixels + i);
      }
      return transpose_converted<DType::f32, kType>({pixels, lanes(), call.size, call.count}, planes, call.size);
    }
    const T* pixels = static_cast<const T*>(call.pixels);
    if constexpr (kType == DType::f32) {
      transpose_32bit(pixels, lanes(), planes, call.size, call.size, call.count);
    } else {
      const Rows<T> rows{pixels, lanes(), call.size, call.count};
      if (!transpose_16bit<kType>(rows, planes, call.size)) transpose_converted<kType, kType>(rows, planes, call.size);
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

template <DType kType, DType kStrip>
constexpr PlaneKernels::Staging strip_kernels() {
  using Rows = StagedRows<kType, kStrip>;
  return {&Rows::stage, &Rows::stage_pixels};
}

template <DType kType>
void fill_planes(PlaneKernels& kernels) {
  kernels.staged_as_f32[static_cast<int>(kType)] = strip_kernels<kType, DType::f32>();
  kernels.staged[static_cast<int>(kType)] = strip_kernels<kType, kType>();
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
