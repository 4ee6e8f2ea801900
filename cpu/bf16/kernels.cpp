// Staging and finishing around the bf16 units, compiled once a target. Staging reads and writes an element once for all
// taps and lanes; parts are made here once, so that splitting costs nothing beside r·s·K products.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/bf16/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/bf16/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cstring>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

enum class F16 : std::uint16_t {};  // storage; bf16's is std::uint16_t

/// Columns of a row that come from the image: [begin, end).
struct InsideColumns {
  std::int64_t begin, end;
};
HWY_INLINE InsideColumns inside_columns(const Bf16StageRow& row) {
  if (row.x == nullptr) return {0, 0};
  const std::int64_t begin = row.column >= 0 ? 0 : ceil_div(-row.column, row.step);
  const std::int64_t end = row.column >= row.width ? 0 : ceil_div(row.width - row.column, row.step);
  const std::int64_t first = std::min(begin, row.columns);
  return {first, std::clamp(end, first, row.columns)};
}

template <class D>
HWY_INLINE hn::Vec<D> load_as_f32(D d, const float* x) {
  return hn::LoadU(d, x);
}
template <class D>
HWY_INLINE hn::Vec<D> load_as_f32(D d, const F16* x) {
  return f16_to_f32(d, hn::LoadU(HalfTag<D>(), reinterpret_cast<const std::uint16_t*>(x)));
}

/// Values as bf16 parts: each part is what the parts before it left, rounded to bf16. Subtractions are exact.
template <int kParts, class D>
HWY_INLINE void split_vector(D d, hn::Vec<D> rest, std::int64_t part, std::uint16_t* strip) {
  for (int p = 0; p < kParts; ++p) {
    const auto half = f32_to_bf16(d, rest);
    hn::StoreU(half, HalfTag<D>(), strip + p * part);
    rest = hn::Sub(rest, bf16_to_f32(d, half));
  }
}

template <int kParts, class T>
HWY_INLINE void split_position(const T* x, std::int64_t part, std::uint16_t* strip) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < kBf16Channels; i += hn::Lanes(d)) {
    split_vector<kParts>(d, load_as_f32(d, x + i), part, strip + i);
  }
}

template <int kParts, class T>
HWY_INLINE void write_position(const T* x, std::int64_t part, std::uint16_t* strip) {
  if constexpr (kParts == 1) {
    std::memcpy(strip, x, kBf16Channels * sizeof(T));
  } else {
    split_position<kParts>(x, part, strip);
  }
}

template <int kParts>
HWY_INLINE void zero_positions(const Bf16StageRow& row, std::uint16_t* strip, std::int64_t begin, std::int64_t end) {
  for (int p = 0; p < kParts; ++p) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill_n(strip + p * row.part + i * row.position, kBf16Channels, std::uint16_t{0});
    }
  }
}

template <int kParts>
HWY_INLINE void zero_pixels(const Bf16StageRow& row, std::int64_t begin, std::int64_t end) {
  for (int p = 0; p < kParts; ++p) {
    std::fill(row.strip + p * row.part + begin * row.pixel, row.strip + p * row.part + end * row.pixel, 0);
  }
}

/// Pixels of 3 bf16 channels, two at a time; how many it took.
HWY_INLINE std::int64_t spread_pixels(const std::uint16_t* x, std::int64_t count, std::uint16_t* strip) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(x), static_cast<void>(count), static_cast<void>(strip);
  return 0;
#else
  const hn::FixedTag<std::uint8_t, 16> d;
  alignas(16) static constexpr std::uint8_t kBytes[16] = {0, 1, 2, 3, 4, 5, 128, 128, 6, 7, 8, 9, 10, 11, 128, 128};
  const auto bytes = hn::Load(d, kBytes);
  std::int64_t i = 0;
  for (; i + 3 <= count; i += 2) {  // a load reads into a third pixel
    const auto pixels = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(x + 3 * i));
    hn::StoreU(hn::TableLookupBytesOr0(pixels, bytes), d, reinterpret_cast<std::uint8_t*>(strip + 4 * i));
  }
  return i;
#endif
}

/// Pixels [begin, end) of the strip, all inside the image.
template <int kParts, class T>
HWY_INLINE void stage_pixels(const Bf16StageRow& row, const T* x, std::int64_t begin, std::int64_t end) {
  if constexpr (kParts == 1) {
    const T* from = x + (row.column + begin) * row.x_pixel;
    std::uint16_t* strip = row.strip + begin * row.pixel;
    if (row.channels == row.pixel && row.channels == row.x_pixel) {
      std::copy_n(from, (end - begin) * row.pixel, strip);
      return;
    }
    if (row.channels == 3 && row.x_pixel == 3) begin += spread_pixels(from, end - begin, strip);
  }
  const std::int64_t group = kBf16Channels / row.pixel;
  for (; begin < end; begin += group) {
    const std::int64_t count = std::min(group, end - begin);
    const T* from = x + (row.column + begin) * row.x_pixel;
    T elements[kBf16Channels] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(from + i * row.x_pixel, row.channels, elements + i * row.pixel);
    }
    std::uint16_t parts[kParts * kBf16Channels];
    write_position<kParts>(elements, kBf16Channels, parts);
    for (int p = 0; p < kParts; ++p) {
      std::copy_n(parts + p * kBf16Channels, count * row.pixel, row.strip + p * row.part + begin * row.pixel);
    }
  }
}

template <int kParts, class T>
HWY_INLINE void stage_folded(const Bf16StageRow& row, const T* x) {
  const InsideColumns inside = inside_columns(row);
  if (inside.begin == inside.end) return zero_pixels<kParts>(row, 0, row.columns);
  zero_pixels<kParts>(row, 0, inside.begin);
  stage_pixels<kParts>(row, x, inside.begin, inside.end);
  zero_pixels<kParts>(row, inside.end, row.columns);
}

template <int kParts, class T>
HWY_INLINE void stage_block(const Bf16StageRow& row, const T* x, std::int64_t channels, std::uint16_t* strip) {
  const InsideColumns inside = inside_columns(row);
  if (inside.begin == inside.end) return zero_positions<kParts>(row, strip, 0, row.columns);
  zero_positions<kParts>(row, strip, 0, inside.begin);
  const T* from = x + (row.column + inside.begin * row.step) * row.x_pixel;
  const std::int64_t pitch = row.step * row.x_pixel;
  if constexpr (kParts > 1) {
    if (row.split != nullptr && channels == kBf16Channels) {
      row.split(from, pitch, inside.end - inside.begin, row.part, strip + inside.begin * row.position);
      return zero_positions<kParts>(row, strip, inside.end, row.columns);
    }
  }
  for (std::int64_t i = inside.begin; i < inside.end; ++i, from += pitch) {
    if (channels == kBf16Channels) {
      write_position<kParts>(from, row.part, strip + i * row.position);
    } else {
      T lanes[kBf16Channels] = {};
      std::copy_n(from, channels, lanes);
      write_position<kParts>(lanes, row.part, strip + i * row.position);
    }
  }
  zero_positions<kParts>(row, strip, inside.end, row.columns);
}

template <int kParts, class T>
void stage_row(const Bf16StageRow& row) {
  const T* x = static_cast<const T*>(row.x);
  if (row.pixel > 0) return stage_folded<kParts>(row, x);
  for (std::int64_t block = 0; block < row.blocks; ++block) {
    const std::int64_t first = block * kBf16Channels;
    const std::int64_t channels = std::min<std::int64_t>(kBf16Channels, row.channels - first);
    stage_block<kParts>(row, x + (x == nullptr ? 0 : first), channels, row.strip + block * row.block);
  }
}

template <class D>
HWY_INLINE hn::Vec<D> finished_vector(D d, const Bf16Finish& call, std::int64_t pixel, std::int64_t lane) {
  const float* c = call.c + lane;
  hn::Vec<D> value;
  if (call.below == nullptr) {
    value = hn::LoadU(d, c + pixel * kBf16Lanes);
  } else {
    const std::int64_t left = 2 * pixel * kBf16Lanes;
    const std::int64_t right = left + kBf16Lanes;
    const float* below = call.below + lane;
    value = nan_max(d, nan_max(d, hn::LoadU(d, c + left), hn::LoadU(d, c + right)),
                    nan_max(d, hn::LoadU(d, below + left), hn::LoadU(d, below + right)));
  }
  if (call.bias != nullptr) value = hn::Add(value, hn::LoadU(d, call.bias + lane));
  if (call.activation == Activation::relu) value = relu(d, value);
  if (call.activation == Activation::tanh) value = hn::CallTanh(d, value);
  return value;
}

template <class D>
HWY_INLINE void stream_f32(D d, hn::Vec<D> value, void* y, std::int64_t element) {
  hn::Stream(value, d, static_cast<float*>(y) + element);
}

template <DType kType>
void finish(const Bf16Finish& call) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel) {
    Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + pixel * call.y_pixel;
    for (int lane = 0; lane < call.lanes; lane += lanes) {
      const auto value = finished_vector(d, call, pixel, lane);
      if (kType == DType::f32 && call.streams) {
        stream_f32(d, value, call.y, pixel * call.y_pixel + lane);
      } else if (lane + lanes <= call.lanes) {
        store_f32_as<kType>(d, value, y + lane);
      } else {
        store_first_f32_as<kType>(d, value, y + lane, call.lanes - lane);
      }
    }
  }
}

const Bf16Kernels& bf16_kernels_here() {
  static const Bf16Kernels kernels{.stage_bf16 = &stage_row<1, std::uint16_t>,
                                   .stage_f16 = &stage_row<2, F16>,
                                   .stage_f32 = {nullptr, nullptr, &stage_row<2, float>, &stage_row<3, float>},
                                   .finish_bf16 = &finish<DType::bf16>,
                                   .finish_f16 = &finish<DType::f16>,
                                   .finish_f32 = &finish<DType::f32>};
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const Bf16Kernels& bf16_kernels(const Target& target) {
#define GABLE_CPU_CASE(target_id, ns, name) \
  if (target.id == (target_id)) return ns::bf16_kernels_here();
  GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_CASE)
#undef GABLE_CPU_CASE
  return HWY_STATIC_DISPATCH(bf16_kernels_here)();
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
