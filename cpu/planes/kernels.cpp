// Staging, register tiles of f32 and epilogues, compiled once for each target.
// Tile: 14 lanes x 2 vectors of positions with 32 registers (28 sums, 2 vectors of x, 1 broadcast weight), 6 x 2 with
// 16; few lanes take 4 vectors. Inner step: one channel of one tap. It reads 2 vectors of x (128 B on AVX-512,
// unaligned, from L1 or L2) and 14 broadcast weights (56 B, a linear stream), and does 28 FMA = 896 FLOP.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/planes/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/planes/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "cpu/common/half.h"
#include "cpu/common/stream-inl.h"
#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {
namespace planes_here {

namespace hn = hwy::HWY_NAMESPACE;
using planes::FinishCall;
using planes::Kernels;
using planes::Piece;
using planes::StageAxis;
using planes::StageCall;
using planes::Tile;
using planes::TileUnit;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
constexpr std::int64_t lanes_of_vector() { return static_cast<std::int64_t>(hn::MaxLanes(F())); }

// ---- Register tiles.

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTileLanes = 14;
constexpr int kLanesOfFour = 6;
#else
constexpr int kTileLanes = 6;
constexpr int kLanesOfFour = 2;
#endif
/// Weights are prefetched this many floats ahead: a page, which the hardware's stream does not cross.
constexpr std::int64_t kWeightsAhead = 1024;
constexpr std::int64_t kLineFloats = 16;

/// Whether tiles store parts of vectors from registers. Without masks, a part takes so many instructions that tiles
/// share one loop for it.
constexpr bool kStoresParts = HWY_TARGET == HWY_AVX3;

/// Stores the first outputs of each lane from sums, where the tile's vectors are not full.
template <DType kStored>
HWY_INLINE void store_part_as(const Tile& tile, int lanes) {
  const F d;
  const std::int64_t n = lanes_of_vector();
  const V least = hn::Set(d, tile.direct.least);
  auto* y = static_cast<Storage<kStored>*>(tile.direct.y);
  for (int lane = 0; lane < lanes; ++lane, y += tile.direct.plane) {
    const V bias = tile.direct.bias == nullptr ? hn::Zero(d) : hn::Set(d, tile.direct.bias[lane]);
    const float* sums = tile.sums + lane * tile.sums_lane;
    for (std::int64_t i = 0; i < tile.direct.count; i += n) {
      const V value = at_least(d, least, hn::Add(hn::LoadU(d, sums + i), bias));
      const std::int64_t rest = tile.direct.count - i;
      if (rest >= n) {
        store_f32_as<kStored>(d, value, y + i);
      } else {
        store_first_f32_as<kStored>(d, value, y + i, static_cast<int>(rest));
      }
    }
  }
}
HWY_NOINLINE void store_part(const Tile& tile, int lanes) {
  if (tile.direct.type == DType::f32) return store_part_as<DType::f32>(tile, lanes);
  if (tile.direct.type == DType::f16) return store_part_as<DType::f16>(tile, lanes);
  store_part_as<DType::bf16>(tile, lanes);
}

/// Reads a strip, which is f32, or an image of kType in place, of whose type the results are then too.
template <int kVectors, int kLanes, DType kType>
struct PlaneTile {
  static HWY_INLINE void store_sums(const Tile& tile, const V (&sums)[kLanes][kVectors]) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[lane][v], d, tile.sums + lane * tile.sums_lane + v * n);
    }
  }

  template <DType kStored>
  static HWY_INLINE void store_directly(const Tile& tile, const V (&sums)[kLanes][kVectors]) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    const V least = hn::Set(d, tile.direct.least);
    auto* y = static_cast<Storage<kStored>*>(tile.direct.y);
    [[maybe_unused]] const bool whole = tile.direct.count == kVectors * n;
    HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
      const V bias = tile.direct.bias == nullptr ? hn::Zero(d) : hn::Set(d, tile.direct.bias[lane]);
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
        const V value = at_least(d, least, hn::Add(sums[lane][v], bias));
        const std::int64_t rest = tile.direct.count - v * n;
        if (!kStoresParts || whole || rest >= n) {
          store_f32_as<kStored>(d, value, y + v * n);
        } else if constexpr (kStoresParts) {
          if (rest > 0) store_first_f32_as<kStored>(d, value, y + v * n, static_cast<int>(rest));
        }
      }
      y += tile.direct.plane;
    }
  }

  static HWY_INLINE void store(const Tile& tile, const V (&sums)[kLanes][kVectors]) {
    if (tile.direct.y == nullptr) return store_sums(tile, sums);
    if (!kStoresParts && tile.direct.count < kVectors * lanes_of_vector()) {
      store_sums(tile, sums);
      return store_part(tile, kLanes);
    }
    if constexpr (kType != DType::f32) {
      store_directly<kType>(tile, sums);
    } else if (tile.direct.type == DType::f32) {
      store_directly<DType::f32>(tile, sums);
    } else if (tile.direct.type == DType::f16) {
      store_directly<DType::f16>(tile, sums);
    } else {
      store_directly<DType::bf16>(tile, sums);
    }
  }

  template <bool kPrefetches>
  static HWY_INLINE void sum(const Tile& tile, V (&sums)[kLanes][kVectors]) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    const float* HWY_RESTRICT weights = tile.weights;
    const auto* block = static_cast<const Storage<kType>*>(tile.x);
    const std::int64_t x_step = tile.x_step;
    for (std::int64_t left = tile.steps; left > 0; left -= planes::kBlockSteps) {
      const std::int64_t steps = std::min(left, planes::kBlockSteps);
      for (std::int64_t tap = 0; tap < tile.tap_count; ++tap) {
        const Storage<kType>* HWY_RESTRICT x = block + tile.taps[tap];
        for (std::int64_t step = 0; step < steps; ++step) {
          V in[kVectors];
          HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
            in[v] = load_as_f32<kType>(d, x + v * n);
            if constexpr (kPrefetches) hwy::Prefetch(x + v * n + tile.prefetch);
          }
          HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
            const V weight = hn::Set(d, weights[lane]);
            HWY_UNROLL(4)
            for (int v = 0; v < kVectors; ++v) sums[lane][v] = add_product(d, weight, in[v], sums[lane][v]);
          }
          weights += kLanes;
          x += x_step;
        }
      }
      block += planes::kBlockSteps * x_step;
    }
  }

  static void run(const Tile& tile) {
    const F d;
    V sums[kLanes][kVectors];
    HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) sums[lane][v] = hn::Zero(d);
    }
    if (tile.prefetch != 0) {
      sum<true>(tile, sums);
    } else {
      sum<false>(tile, sums);
    }
    store(tile, sums);
  }
};

/// Pixels by lanes. Inner step: 2 vectors of weights, a linear stream, and 14 broadcast pixels.
template <int kVectors, int kPixels>
struct PixelTile {
  static void run(const Tile& tile) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    V sums[kPixels][kVectors];
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sums[p][v] = hn::Zero(d);
    }
    const float* HWY_RESTRICT weights = tile.weights;
    const auto* block = static_cast<const float*>(tile.x);
    const std::int64_t x_step = tile.x_step;
    for (std::int64_t left = tile.steps; left > 0; left -= planes::kBlockSteps) {
      const std::int64_t steps = std::min(left, planes::kBlockSteps);
      weights += tile.first_tap * steps * kVectors * n;
      for (std::int64_t tap = tile.first_tap; tap < tile.end_tap; ++tap) {
        const float* HWY_RESTRICT x = block + tile.taps[tap];
        for (std::int64_t step = 0; step < steps; ++step) {
          V lanes[kVectors];
          HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
            lanes[v] = hn::LoadU(d, weights + v * n);
            if (v * n % kLineFloats == 0) hwy::Prefetch(weights + v * n + kWeightsAhead);
          }
          HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
            const V pixel = hn::Set(d, x[p]);
            HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sums[p][v] = add_product(d, pixel, lanes[v], sums[p][v]);
          }
          weights += kVectors * n;
          x += x_step;
        }
      }
      weights += (tile.tap_count - tile.end_tap) * steps * kVectors * n;
      block += planes::kBlockSteps * x_step;
    }
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[p][v], d, tile.sums + p * tile.sums_lane + v * n);
    }
  }
};

template <int kPixels>
void fill_pixel_tiles(TileUnit& unit) {
  unit.pixel_tile[1][kPixels] = &PixelTile<1, kPixels>::run;
  unit.pixel_tile[2][kPixels] = &PixelTile<2, kPixels>::run;
  if constexpr (kPixels > 1) fill_pixel_tiles<kPixels - 1>(unit);
}

template <int kVectors, int kLanes>
void fill_tiles(TileUnit& unit) {
  unit.tile[kVectors][kLanes] = &PlaneTile<kVectors, kLanes, DType::f32>::run;
  unit.in_place[static_cast<int>(DType::f32)][kVectors][kLanes] = unit.tile[kVectors][kLanes];
  unit.in_place[static_cast<int>(DType::f16)][kVectors][kLanes] = &PlaneTile<kVectors, kLanes, DType::f16>::run;
  unit.in_place[static_cast<int>(DType::bf16)][kVectors][kLanes] = &PlaneTile<kVectors, kLanes, DType::bf16>::run;
  if constexpr (kLanes > 1) fill_tiles<kVectors, kLanes - 1>(unit);
}

TileUnit make_unit() {
  TileUnit unit;
  unit.name = "planes";
  unit.positions = static_cast<int>(lanes_of_vector());
  unit.most_lanes = kTileLanes;
  // Two vectors of 256 bits a cycle, or one to two of 512 bits; narrower targets have no multiply-add.
  unit.vector_ns = lanes_of_vector() == 16 ? 0.25 : lanes_of_vector() == 8 ? 0.15 : 0.3;
  std::fill(std::begin(unit.stores), std::end(unit.stores), true);
  fill_tiles<1, kTileLanes>(unit);
  fill_tiles<2, kTileLanes>(unit);
  fill_tiles<4, kLanesOfFour>(unit);
  unit.most_pixels = kTileLanes;
  fill_pixel_tiles<kTileLanes>(unit);
  return unit;
}

// ---- Staging.

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

// ---- Epilogue.

/// One vector of pixels after the pool. `sums` is the first pixel's window.
HWY_INLINE V pooled(const FinishCall& call, const float* sums) {
  const F d;
  const std::int64_t step = call.pool.stride_w;
  const auto load = [&](const float* from) HWY_ATTR {
    if (step == 1) return hn::LoadU(d, from);
#if HWY_TARGET != HWY_SCALAR
    if (step == 2) return hn::ConcatEven(d, hn::LoadU(d, from + lanes_of_vector()), hn::LoadU(d, from));
#endif
    HWY_ALIGN float values[hn::MaxLanes(F())];
    for (std::int64_t i = 0; i < lanes_of_vector(); ++i) values[i] = from[i * step];
    return hn::Load(d, values);
  };
  V best = load(sums);
  for (std::int64_t h = 0; h < call.pool.h; ++h) {
    for (std::int64_t w = h == 0 ? 1 : 0; w < call.pool.w; ++w) best = nan_max(d, best, load(sums + h * call.row + w));
  }
  return best;
}

/// Stores the first `count` results of each vector, which is prepared once for many vectors.
template <DType kType>
class ResultStore {
 public:
  ResultStore(const FinishCall& call, std::int64_t count)
      : count_(std::min(count, lanes_of_vector())), non_temporal_(call.non_temporal) {}

  HWY_INLINE void operator()(V value, Storage<kType>* y) const {
    const F d;
    if (count_ < lanes_of_vector()) return store_part(value, y);
    constexpr std::size_t kBytes = hn::MaxLanes(F()) * sizeof(*y);
    if (non_temporal_ && reinterpret_cast<std::uintptr_t>(y) % kBytes == 0) return stream_f32_as<kType>(d, value, y);
    store_f32_as<kType>(d, value, y);
  }

 private:
  HWY_INLINE void store_part(V value, Storage<kType>* y) const {
    store_first_f32_as<kType>(F(), value, y, static_cast<int>(count_));
  }

  std::int64_t count_;
  bool non_temporal_;
};

/// Bias and activation. Without bias, `bias` points to a zero.
struct Activate {
  V least;
  bool tanh;
  explicit Activate(const FinishCall& call)
      : least(hn::Set(F(), call.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity())),
        tanh(call.activation == Activation::tanh) {}
  HWY_INLINE V operator()(V value, const float* bias) const {
    const F d;
    value = at_least(d, least, hn::Add(value, hn::Set(d, *bias)));
    return HWY_UNLIKELY(tanh) ? tanh_f32(d, value) : value;
  }
};
constexpr float kNoBias = 0.0f;

/// One vector of each lane's pixels.
template <DType kType, bool kPools>
HWY_INLINE void finish_lanes(const FinishCall& call, const float* sums, Storage<kType>* y, std::int64_t count) {
  const F d;
  const Activate activate(call);
  const ResultStore<kType> store(call, count);
  const float* bias = call.bias == nullptr ? &kNoBias : call.bias;
  const std::int64_t bias_step = call.bias == nullptr ? 0 : 1;
  for (int lane = 0; lane < call.lanes; ++lane) {
    V value;
    if constexpr (kPools) {
      value = pooled(call, sums);
    } else {
      value = hn::LoadU(d, sums);
    }
    store(activate(value, bias), y);
    sums += call.lane;
    y += call.plane;
    bias += bias_step;
  }
}

template <DType kType>
void finish(const FinishCall& call) {
  for (std::int64_t p = 0; p < call.piece_count; ++p) {
    const Piece& piece = call.pieces[p];
    Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + piece.y;
    for (std::int64_t i = 0; i < piece.count; i += lanes_of_vector()) {
      if (call.pool.none()) {
        finish_lanes<kType, false>(call, call.sums + piece.sums + i, y + i, piece.count - i);
      } else {
        finish_lanes<kType, true>(call, call.sums + piece.sums + i * call.pool.stride_w, y + i, piece.count - i);
      }
    }
  }
}

#if HWY_TARGET == HWY_AVX3
/// The 4x4 blocks of 4 rows, transposed: block b of result i is column 4b + i.
HWY_INLINE void transpose_blocks(V (&rows)[4]) {
  const F d;
  const hn::Repartition<double, F> dd;
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, rows[0], rows[1]));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, rows[0], rows[1]));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, rows[2], rows[3]));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, rows[2], rows[3]));
  rows[0] = hn::BitCast(d, hn::InterleaveLower(dd, low01, low23));
  rows[1] = hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23));
  rows[2] = hn::BitCast(d, hn::InterleaveLower(dd, high01, high23));
  rows[3] = hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23));
}

/// 16 pixels of 16 lanes, from registers to y.
template <DType kType>
HWY_INLINE void finish_block(const FinishCall& call, const float* sums, int first_lane, Storage<kType>* y,
                             std::int64_t pixels) {
  const F d;
  V groups[4][4];
  HWY_UNROLL(4) for (int g = 0; g < 4; ++g) {
    HWY_UNROLL(4) for (int i = 0; i < 4; ++i) groups[g][i] = hn::LoadU(d, sums + (4 * g + i) * call.lane);
    transpose_blocks(groups[g]);
  }
  const Activate activate(call);
  const ResultStore<kType> store_pixels(call, pixels);
  const auto store = [&](int lane, V value) HWY_ATTR {
    if (first_lane + lane >= call.lanes) return;
    const float* bias = call.bias == nullptr ? &kNoBias : call.bias + first_lane + lane;
    store_pixels(activate(value, bias), y + lane * call.plane);
  };
  HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
    const V a = groups[0][i], b = groups[1][i], c = groups[2][i], e = groups[3][i];
    const V even_ab = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
    const V odd_ab = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
    const V even_ce = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(e), c);
    const V odd_ce = hn::OddEvenBlocks(e, hn::SwapAdjacentBlocks(c));
    store(i, hn::ConcatLowerLower(d, even_ce, even_ab));
    store(4 + i, hn::ConcatLowerLower(d, odd_ce, odd_ab));
    store(8 + i, hn::ConcatUpperUpper(d, even_ce, even_ab));
    store(12 + i, hn::ConcatUpperUpper(d, odd_ce, odd_ab));
  }
}

template <DType kType>
void finish_pixels(const FinishCall& call) {
  constexpr int kSide = 16;
  for (std::int64_t p = 0; p < call.piece_count; ++p) {
    const Piece& piece = call.pieces[p];
    for (int lane = 0; lane < call.lanes; lane += kSide) {
      Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + lane * call.plane + piece.y;
      const float* sums = call.sums + piece.sums * call.lane + lane;
      for (std::int64_t i = 0; i < piece.count; i += kSide) {
        finish_block<kType>(call, sums + i * call.lane, lane, y + i, piece.count - i);
      }
    }
  }
}
#else
/// Sums of pixels by lanes: transposes them and finishes the result.
template <DType kType>
void finish_pixels(const FinishCall& call) {
  FinishCall transposed = call;
  std::int64_t pixels = 0;
  for (std::int64_t p = 0; p < call.piece_count; ++p) {
    pixels = std::max(pixels, call.pieces[p].sums + call.pieces[p].count);
  }
  transpose_32bit(call.sums, call.lane, call.transposed, planes::kTransposedPitch, pixels,
                  static_cast<std::int64_t>(call.lanes));
  transposed.sums = call.transposed;
  transposed.lane = planes::kTransposedPitch;
  finish<kType>(transposed);
}
#endif

const Kernels& kernels_here() {
  static const Kernels kernels{
      .stage_f32 = {&stage_channels<DType::f32>, &stage_channels<DType::f16>, &stage_channels<DType::bf16>},
      .stage_bf16 = &stage_pairs<DType::bf16, 1>,
      .stage_f16 = &stage_pairs<DType::f16, 2>,
      .stage_parts_of_f32 = {nullptr, nullptr, &stage_pairs<DType::f32, 2>, &stage_pairs<DType::f32, 3>},
      .finish = {&finish<DType::f32>, &finish<DType::f16>, &finish<DType::bf16>},
      .finish_pixels = {&finish_pixels<DType::f32>, &finish_pixels<DType::f16>, &finish_pixels<DType::bf16>}};
  return kernels;
}
const TileUnit& unit_here() {
  static const TileUnit unit = make_unit();
  return unit;
}

}  // namespace planes_here
}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu::planes {

const Kernels& kernels(const Target& target) { GABLE_CPU_RETURN_OF(target, planes_here::kernels_here()); }
const TileUnit& vector_unit(const Target& target) { GABLE_CPU_RETURN_OF(target, planes_here::unit_here()); }

}  // namespace gable::cpu::planes
#endif  // HWY_ONCE
