// Staging of input into the strip (kernels.h), as f32 or as pairs of bf16 parts, compiled once for each target.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/planes/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/planes/staging.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>

#include "cpu/common/half.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {
namespace planes_staging {

namespace hn = hwy::HWY_NAMESPACE;
using planes::StageAxis;
using planes::StageCall;
using planes::StageKernels;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
constexpr std::int64_t lanes_of_vector() { return static_cast<std::int64_t>(hn::MaxLanes(F())); }

/// The positions [begin, end) of an axis whose coordinates lie inside the plane.
struct Inside {
  std::int64_t begin, end;
};
HWY_INLINE Inside inside_of(const StageAxis& axis) {
  const std::int64_t begin = axis.first >= 0 ? 0 : ceil_div(-axis.first, axis.step);
  const std::int64_t end = axis.first >= axis.size ? 0 : ceil_div(axis.size - axis.first, axis.step);
  const std::int64_t first = std::min(begin, axis.count);
  return {first, std::clamp(end, first, axis.count)};
}

using U = hn::RebindToUnsigned<F>;

/// Reads vectors of a row's columns, `step` apart. The last vector of a row has `tail` columns; its loads are masked,
/// and the masks are made once for all rows.
class Columns {
 public:
  Columns(std::int64_t step, std::int64_t count)
      : step_(step), last_((std::max<std::int64_t>(count, 1) - 1) / lanes_of_vector()) {
    tail_ = count - last_ * lanes_of_vector();
#if HWY_TARGET == HWY_AVX3
    const auto n = static_cast<std::size_t>(lanes_of_vector()), tail = static_cast<std::size_t>(tail_);
    const std::size_t span = step == 1 ? tail : 2 * tail - 1;
    low_ = hn::FirstN(F(), std::min(span, n));
    high_ = hn::FirstN(F(), span > n ? span - n : 0);
    half_low_ = hn::FirstN(HalfTag<F>(), std::min(span, n));
    half_high_ = hn::FirstN(HalfTag<F>(), span > n ? span - n : 0);
    halves_ = hn::FirstN(hn::Repartition<std::uint16_t, F>(), span);
#endif
  }

  std::int64_t vectors() const { return last_ + 1; }

  /// Vector `index` of the row whose first column is at x, as f32.
  template <DType kType>
  HWY_INLINE V load(const Storage<kType>* x, std::int64_t index) const {
    const F d;
    const std::int64_t n = lanes_of_vector();
    x += index * n * step_;
    if (step_ == 1) return index < last_ ? load_as_f32<kType>(d, x) : load_tail<kType>(x);
#if HWY_TARGET != HWY_SCALAR
    if (step_ == 2 && index < last_) {
      return hn::ConcatEven(d, load_as_f32<kType>(d, x + n), load_as_f32<kType>(d, x));
    }
#endif
#if HWY_TARGET == HWY_AVX3
    if (step_ == 2) return hn::ConcatEven(d, load_high<kType>(x + n), load_tail<kType>(x));
#endif
    HWY_ALIGN float values[hn::MaxLanes(F())] = {};
    const std::int64_t count = index < last_ ? n : tail_;
    for (std::int64_t i = 0; i < count; ++i) values[i] = element_as_f32(x, kType, i * step_);
    return hn::Load(d, values);
  }

  /// The same of bf16, as the bits of each value in the low half of a lane.
  HWY_INLINE hn::Vec<U> load_bits(const std::uint16_t* x, std::int64_t index) const {
    const U du;
#if HWY_TARGET == HWY_AVX3
    if (step_ == 1) {
      const HalfTag<F> half;
      x += index * lanes_of_vector();
      return hn::PromoteTo(du, index < last_ ? hn::LoadU(half, x) : hn::MaskedLoad(half_low_, half, x));
    }
    if (step_ == 2) {  // a pair of values is one element; only the first is needed
      const hn::Repartition<std::uint16_t, F> both;
      x += index * 2 * lanes_of_vector();
      const auto pairs = index < last_ ? hn::LoadU(both, x) : hn::MaskedLoad(halves_, both, x);
      return hn::And(hn::BitCast(du, pairs), hn::Set(du, 0xffffu));
    }
#endif
    return hn::ShiftRight<16>(hn::BitCast(du, load<DType::bf16>(x, index)));
  }

 private:
#if HWY_TARGET == HWY_AVX3
  template <DType kType>
  HWY_INLINE V load_tail(const Storage<kType>* x) const {
    if constexpr (kType == DType::f32) {
      return hn::MaskedLoad(low_, F(), x);
    } else {
      return to_f32<kType>(F(), hn::MaskedLoad(half_low_, HalfTag<F>(), x));
    }
  }
  template <DType kType>
  HWY_INLINE V load_high(const Storage<kType>* x) const {
    if constexpr (kType == DType::f32) {
      return hn::MaskedLoad(high_, F(), x);
    } else {
      return to_f32<kType>(F(), hn::MaskedLoad(half_high_, HalfTag<F>(), x));
    }
  }
  hn::Mask<F> low_, high_;
  hn::Mask<HalfTag<F>> half_low_, half_high_;
  hn::Mask<hn::Repartition<std::uint16_t, F>> halves_;
#else
  template <DType kType>
  HWY_INLINE V load_tail(const Storage<kType>* x) const {
    const F d;
    return tail_ == lanes_of_vector() ? load_as_f32<kType>(d, x)
                                      : load_first_as_f32<kType>(d, x, static_cast<int>(tail_));
  }
#endif

  std::int64_t step_, last_, tail_ = 0;
};

/// Stores whole vectors of zeros. What they overwrite beyond `end` is staged later or is unused.
HWY_INLINE void zero(float* strip, std::int64_t begin, std::int64_t end) {
  const F d;
  if (begin >= end) return;
  hn::StoreU(hn::Zero(d), d, strip + begin);  // usually enough; gcc would turn a loop into a call of memset
  for (std::int64_t i = begin + lanes_of_vector(); i < end; i += lanes_of_vector())
    hn::StoreU(hn::Zero(d), d, strip + i);
}

/// Prefetches the rows that a call stages, some channels ahead. Rows with a stride, and the planes' small parts of
/// large images, are no stream that the hardware follows.
template <DType kType>
class RowsAhead {
 public:
  RowsAhead(const StageCall& call, std::int64_t columns) {
    if (!call.prefetches) return;
    columns_ = columns * call.columns.step;
    const std::int64_t lines = ceil_div(columns_, kLineElements) * call.rows.count;
    const std::int64_t channels = 1 + kMinLines / std::max<std::int64_t>(lines, 1);
    distance_ = channels * call.plane;
    last_ = call.channels - channels;
  }
  /// The row at `x` of channel `channel` is staged now.
  HWY_INLINE void prefetch(const Storage<kType>* x, std::int64_t channel) const {
    if (channel >= last_) return;
    for (std::int64_t i = 0; i < columns_; i += kLineElements) hwy::Prefetch(x + distance_ + i);
  }

 private:
  static constexpr std::int64_t kLineElements = 64 / sizeof(Storage<kType>);
  static constexpr std::int64_t kMinLines = 16;
  std::int64_t columns_ = 0, distance_ = 0, last_ = 0;
};

template <DType kType>
void stage_channels(const StageCall& call) {
  const F d;
  const Inside inside = inside_of(call.columns);
  const Columns columns(call.columns.step, inside.end - inside.begin);
  const std::int64_t vectors = inside.begin < inside.end ? columns.vectors() : 0;
  const std::int64_t first = call.columns.first + inside.begin * call.columns.step;
  const RowsAhead<kType> ahead(call, inside.end - inside.begin);
  for (std::int64_t c = 0; c < call.channels; ++c) {
    const Storage<kType>* plane = static_cast<const Storage<kType>*>(call.x) + c * call.plane;
    float* strip = call.strip + c * call.step;
    for (std::int64_t i = 0; i < call.rows.count; ++i, strip += call.columns.count) {
      const std::int64_t row = call.rows.first + i * call.rows.step;
      if (row < 0 || row >= call.rows.size) {
        zero(strip, 0, call.columns.count);
        continue;
      }
      const Storage<kType>* x = plane + row * call.columns.size + first;
      ahead.prefetch(x, c);
      zero(strip, 0, inside.begin);
      for (std::int64_t v = 0; v < vectors; ++v) {
        hn::StoreU(columns.template load<kType>(x, v), d, strip + inside.begin + v * lanes_of_vector());
      }
      zero(strip, inside.end, call.columns.count);
    }
    zero(strip, 0, 1);  // the last tile's vectors reach beyond the last row, see clear_leftovers()
  }
}

/// f32 to the bits of the nearest bf16, in the low half of each lane. NaN stays NaN.
HWY_INLINE hn::Vec<U> bf16_bits(V value) {
  const U du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
}

/// The pair of two channels' values as parts: each part is the remainder after the parts before it, rounded to bf16.
template <int kParts>
HWY_INLINE void store_pairs(V first, V second, std::int64_t part, float* strip) {
  const F d;
  for (int p = 0; p < kParts; ++p) {
    const auto low = bf16_bits(first);
    const auto high = hn::ShiftLeft<16>(bf16_bits(second));
    hn::StoreU(hn::BitCast(d, hn::Or(low, high)), d, strip + p * part);
    if (p + 1 < kParts) {
      first = hn::Sub(first, hn::BitCast(d, hn::ShiftLeft<16>(low)));
      second = hn::Sub(second, hn::BitCast(d, high));
    }
  }
}

/// Vector `index` of a row of pairs, as parts.
template <DType kType, int kParts>
HWY_INLINE void stage_vector(const StageCall& call, const Columns& columns, const Storage<kType>* x, bool single,
                             std::int64_t index, float* strip) {
  const F d;
  if constexpr (kType == DType::bf16) {
    const U du;
    const auto low = columns.load_bits(x, index);
    const auto high = single ? hn::Zero(du) : hn::ShiftLeft<16>(columns.load_bits(x + call.plane, index));
    hn::StoreU(hn::BitCast(d, hn::Or(low, high)), d, strip);
  } else {
    const V low = columns.template load<kType>(x, index);
    const V high = single ? hn::Zero(d) : columns.template load<kType>(x + call.plane, index);
    store_pairs<kParts>(low, high, call.part, strip);
  }
}

template <DType kType, int kParts>
void stage_pairs(const StageCall& call) {
  const Inside inside = inside_of(call.columns);
  const Columns columns(call.columns.step, inside.end - inside.begin);
  const std::int64_t vectors = inside.begin < inside.end ? columns.vectors() : 0;
  const std::int64_t first = call.columns.first + inside.begin * call.columns.step;
  const RowsAhead<kType> ahead(call, inside.end - inside.begin);
  const auto zero_parts = [&](float* strip, std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (int p = 0; p < kParts; ++p) zero(strip + p * call.part, begin, end);
  };
  for (std::int64_t pair = 0; pair < call.steps; ++pair) {
    const std::int64_t c = 2 * pair;
    float* strip = call.strip + pair * call.step;
    const bool single = c + 1 == call.channels;
    const Storage<kType>* plane = static_cast<const Storage<kType>*>(call.x) + c * call.plane;
    for (std::int64_t i = 0; i < call.rows.count; ++i, strip += call.columns.count) {
      const std::int64_t row = call.rows.first + i * call.rows.step;
      if (row < 0 || row >= call.rows.size || c >= call.channels) {  // padding, or steps that fill a block
        zero_parts(strip, 0, call.columns.count);
        continue;
      }
      const Storage<kType>* x = plane + row * call.columns.size + first;
      ahead.prefetch(x, c);
      ahead.prefetch(x + call.plane, c + 1);
      zero_parts(strip, 0, inside.begin);
      for (std::int64_t v = 0; v < vectors; ++v) {
        stage_vector<kType, kParts>(call, columns, x, single, v, strip + inside.begin + v * lanes_of_vector());
      }
      zero_parts(strip, inside.end, call.columns.count);
    }
  }
}

const StageKernels& kernels_here() {
  static const StageKernels kernels{
      .f32 = {&stage_channels<DType::f32>, &stage_channels<DType::f16>, &stage_channels<DType::bf16>},
      .bf16_pairs = &stage_pairs<DType::bf16, 1>,
      .f16_pairs = &stage_pairs<DType::f16, 2>,
      .f32_pairs = {nullptr, nullptr, &stage_pairs<DType::f32, 2>, &stage_pairs<DType::f32, 3>}};
  return kernels;
}

}  // namespace planes_staging
}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu::planes {

const StageKernels& stage_kernels(const Target& target) { GABLE_CPU_RETURN_OF(target, planes_staging::kernels_here()); }

}  // namespace gable::cpu::planes
#endif  // HWY_ONCE
