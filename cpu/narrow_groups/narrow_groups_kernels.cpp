// The kernels of narrow groups, compiled once a target.
// Tile: 14 pixels (12 with 16 registers) × 1 vector of output channels of several groups. Accumulators in registers;
// strip and weights in L1. Inner step: one input channel of each group at one tap; it reads 1 vector of weights and 14
// vectors of the strip for 14 FMA, whose memory operands these are. L1's two loads a cycle match the rate of the FMA.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/narrow_groups/narrow_groups_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/narrow_groups/narrow_groups_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "cpu/common/pixel_pitch-inl.h"
#include "cpu/common/strides.h"
#include "cpu/common/vector-inl.h"
#include "cpu/narrow_groups/quads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kWidest = 14;
#else
constexpr int kWidest = 12;
#endif

using GroupD = hn::ScalableTag<float>;
using GroupV = hn::Vec<GroupD>;

HWY_INLINE std::int64_t group_lanes() { return static_cast<std::int64_t>(hn::Lanes(GroupD())); }

/// The first `count` elements as f32; touches nothing after them.
template <DType kType>
HWY_INLINE GroupV load_channels(const Storage<kType>* x, std::int64_t count) {
  const GroupD d;
  if (count >= group_lanes()) return load_as_f32<kType>(d, x);
  return load_first_as_f32<kType>(d, x, static_cast<int>(count));
}

/// Which channel each lane reads, of a pixel whose channels fill one vector. In the last block, lanes beyond the last
/// group have indices past the pixel: the mask makes them read some channel of it, and their results are not stored.
HWY_INLINE auto indices_of(const std::int32_t* source) {
  const hn::RebindToSigned<GroupD> di;
  const auto last = hn::Set(di, static_cast<std::int32_t>(group_lanes() - 1));
  return hn::IndicesFromVec(GroupD(), hn::And(hn::LoadU(di, source), last));
}

/// A pixel whose channels fill one vector.
template <DType kType>
HWY_INLINE void spread_one(const SpreadCall& call, const Storage<kType>* x, float* strip) {
  const GroupD d;
  const GroupV channels = load_channels<kType>(x, call.channels);
  for (std::int64_t i = 0; i < call.steps; ++i) {
    const auto from = indices_of(call.source + i * group_lanes());
    hn::StoreU(hn::TableLookupLanes(channels, from), d, strip + i * group_lanes());
  }
}

/// A pixel whose channels fill several vectors: each lane is picked out of its own one.
template <DType kType>
HWY_INLINE void spread_several(const SpreadCall& call, const Storage<kType>* x, float* strip) {
  const GroupD d;
  const hn::RebindToSigned<GroupD> di;
  const std::int64_t lanes = group_lanes();
  for (std::int64_t i = 0; i < call.steps; ++i) {
    const auto source = hn::LoadU(di, call.source + i * lanes);
    const auto lane = hn::And(source, hn::Set(di, static_cast<std::int32_t>(lanes - 1)));
    const auto from = hn::IndicesFromVec(d, lane);
    GroupV mixed = hn::Zero(d);
    for (std::int64_t first = 0; first < call.channels; first += lanes) {
      const GroupV channels = hn::TableLookupLanes(load_channels<kType>(x + first, call.channels - first), from);
      const auto owned = hn::Eq(hn::Sub(source, lane), hn::Set(di, static_cast<std::int32_t>(first)));
      mixed = hn::IfThenElse(hn::RebindMask(d, owned), channels, mixed);
    }
    hn::StoreU(mixed, d, strip + i * lanes);
  }
}

/// Columns whose channels fill one vector, of kSteps vectors each: the permutations stay in registers.
template <DType kType, int kSteps>
HWY_INLINE void spread_columns(const SpreadCall& caller, const Storage<kType>* x, std::int64_t count, float* strip) {
  const GroupD d;
  const SpreadCall call = caller;  // its own, so that stores to the strip cannot change it
  decltype(indices_of(call.source)) from[kSteps];
  HWY_UNROLL(8) for (int i = 0; i < kSteps; ++i) from[i] = indices_of(call.source + i * group_lanes());
  for (std::int64_t column = 0; column < count; ++column, x += call.x_pixel, strip += kSteps * group_lanes()) {
    hwy::Prefetch(x + call.next_row);
    hwy::Prefetch(x + call.next_row + call.channels - 1);
    const GroupV channels = load_channels<kType>(x, call.channels);
    HWY_UNROLL(8) for (int i = 0; i < kSteps; ++i) {
      hn::StoreU(hn::TableLookupLanes(channels, from[i]), d, strip + i * group_lanes());
    }
  }
}

/// Columns whose channels stay as they lie.
template <DType kType>
HWY_INLINE void copy_columns(const SpreadCall& caller, const Storage<kType>* x, std::int64_t count, float* strip) {
  const GroupD d;
  const SpreadCall call = caller;
  for (std::int64_t column = 0; column < count; ++column, x += call.x_pixel) {
    for (std::int64_t i = 0; i < call.steps; ++i, strip += group_lanes()) {
      const std::int64_t left = std::max<std::int64_t>(call.channels - i * group_lanes(), 0);
      hn::StoreU(load_channels<kType>(x + i * group_lanes(), left), d, strip);
    }
  }
}

template <DType kType>
void spread(const SpreadCall& call) {
  constexpr auto kLineElements = static_cast<std::int64_t>(64 / sizeof(Storage<kType>));
  const std::int64_t pixel = call.steps * group_lanes();
  const std::int64_t begin = std::clamp<std::int64_t>(-call.first_column, 0, call.columns);
  const std::int64_t end = std::clamp<std::int64_t>(call.width - call.first_column, begin, call.columns);
  std::fill(call.strip, call.strip + begin * pixel, 0.0f);
  const auto* x = static_cast<const Storage<kType>*>(call.x) + (call.first_column + begin) * call.x_pixel;
  float* strip = call.strip + begin * pixel;
  std::fill(strip + (end - begin) * pixel, call.strip + call.columns * pixel, 0.0f);
  if (call.source == nullptr) return copy_columns<kType>(call, x, end - begin, strip);
  if (call.channels <= group_lanes()) {
    if (call.steps == 1) return spread_columns<kType, 1>(call, x, end - begin, strip);
    if (call.steps == 2) return spread_columns<kType, 2>(call, x, end - begin, strip);
    if (call.steps == 3) return spread_columns<kType, 3>(call, x, end - begin, strip);
    if (call.steps == 4) return spread_columns<kType, 4>(call, x, end - begin, strip);
    if (call.steps == 8) return spread_columns<kType, 8>(call, x, end - begin, strip);
  }
  for (std::int64_t column = begin; column < end; ++column, x += call.x_pixel, strip += pixel) {
    for (std::int64_t i = 0; i < call.channels; i += kLineElements) hwy::Prefetch(x + call.next_row + i);
    hwy::Prefetch(x + call.next_row + call.channels - 1);
    if (call.channels <= group_lanes()) {
      spread_one<kType>(call, x, strip);
    } else {
      spread_several<kType>(call, x, strip);
    }
  }
}

template <int kPixels>
struct NarrowGroupsTile {
  static constexpr int kBases = (kPixels + kBasePixels - 1) / kBasePixels;
  static constexpr int kUnrolled = 4;
  /// Fewer accumulators would wait for the FMA's latency: a second set takes every other step.
  static constexpr bool kTwoSets = kPixels < 8;
  using Bases = const float* [kBases];
  using Sums = GroupV[kPixels];

  template <int kSteps>
  static HWY_INLINE void multiply_add(Bases& base, PixelPitch& px, const float*& weights, Sums& sum, Sums& odd) {
    const GroupD d;
    HWY_UNROLL(4) for (int step = 0; step < kSteps; ++step) {
      const GroupV w = hn::LoadU(d, weights + step * group_lanes());
      px.hide(kPixels);
      HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
        const float* x = px.at(base[p / kBasePixels], p % kBasePixels) + step * group_lanes();
        GroupV& to = step % 2 == 0 ? sum[p] : odd[p];
        to = add_product(d, w, hn::LoadU(d, x), to);
      }
    }
    HWY_UNROLL(2) for (int b = 0; b < kBases; ++b) {
      const float* next = base[b] + kSteps * group_lanes();  // a copy: gcc would keep an array behind the asm in memory
      keep_apart(next);
      base[b] = next;
    }
    weights += kSteps * group_lanes();
  }

  static HWY_INLINE void all_taps(const NarrowGroupsCall& call, Sums& sum, Sums& odd) {
    PixelPitch px = PixelPitch::of(call.x_pixel);
    const float* weights = call.weights;
    for (std::int64_t kh = call.first_row; kh < call.end_row; ++kh) {
      const float* x = call.rows[kh];
      for (std::int64_t run = 0; run < call.runs; ++run, x += call.x_run) {
        Bases base;
        HWY_UNROLL(2) for (int b = 0; b < kBases; ++b) base[b] = x + b * kBasePixels * call.x_pixel;
        std::int64_t step = 0;
        for (; step + kUnrolled <= call.steps; step += kUnrolled) multiply_add<kUnrolled>(base, px, weights, sum, odd);
        for (; step < call.steps; ++step) multiply_add<1>(base, px, weights, sum, odd);
      }
    }
  }

  template <DType kType>
  static HWY_INLINE void finish(const NarrowGroupsCall& call, const Sums& sum) {
    const GroupD d;
    const GroupV least = hn::Set(d, call.least);
    auto* y = static_cast<Storage<kType>*>(call.y);
    if (call.valid == group_lanes()) {
      HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
        store_f32_as<kType>(d, at_least(d, least, sum[p]), y + p * call.y_pixel);
      }
    } else {
      HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
        store_first_f32_as<kType>(d, at_least(d, least, sum[p]), y + p * call.y_pixel, call.valid);
      }
    }
  }

  static void run(const NarrowGroupsCall& call) {
    const GroupD d;
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
      prefetch_for_writing(static_cast<const float*>(advance(call.y, call.y_type, p * call.y_pixel)));
    }
    Sums sum;
    const GroupV bias = hn::LoadU(d, call.bias);
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) sum[p] = bias;
    if constexpr (kTwoSets) {
      Sums odd;
      HWY_UNROLL(8) for (int p = 0; p < kPixels; ++p) odd[p] = hn::Zero(d);
      all_taps(call, sum, odd);
      HWY_UNROLL(8) for (int p = 0; p < kPixels; ++p) sum[p] = hn::Add(sum[p], odd[p]);
    } else {
      all_taps(call, sum, sum);
    }
    if (HWY_LIKELY(call.y_type == DType::f32)) {
      finish<DType::f32>(call, sum);
    } else if (call.y_type == DType::f16) {
      finish<DType::f16>(call, sum);
    } else {
      finish<DType::bf16>(call, sum);
    }
  }
};

template <int kPixels>
void fill_tiles(NarrowGroupsKernels& kernels) {
  kernels.tile[kPixels] = &NarrowGroupsTile<kPixels>::run;
  if constexpr (kPixels > 1) fill_tiles<kPixels - 1>(kernels);
}

NarrowGroupsKernels make_narrow_groups_kernels() {
  NarrowGroupsKernels kernels{};
  kernels.lanes = static_cast<int>(group_lanes());
  kernels.max_pixels = kWidest;
  kernels.spread = {&spread<DType::f32>, &spread<DType::f16>, &spread<DType::bf16>};
  fill_tiles<kWidest>(kernels);
  return kernels;
}

const NarrowGroupsKernels& narrow_groups_kernels_here() {
  static const NarrowGroupsKernels kernels = make_narrow_groups_kernels();
  return kernels;
}

#if HWY_TARGET == HWY_AVX3
template <int kVectors>
const NarrowGroupsKernels& quads_kernels() {
  static const NarrowGroupsKernels kernels = [] {
    NarrowGroupsKernels made = make_narrow_groups_kernels();
    made.quads = true;
    made.max_pixels = kMaxQuadsPixels;
    fill_quads_tiles<kVectors>(made);
    return made;
  }();
  return kernels;
}
#endif

const NarrowGroupsKernels& narrow_groups_kernels_for([[maybe_unused]] const Conv2dProblem& p) {
#if HWY_TARGET == HWY_AVX3
  if (p.group_c() % kQuad == 0 && p.group_c() >= kLeastQuads * kQuad) {
    if (p.group_k() == kQuad) return quads_kernels<1>();
    if (p.group_k() == 2 * kQuad) return quads_kernels<2>();
  }
#endif
  return narrow_groups_kernels_here();
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const NarrowGroupsKernels& narrow_groups_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, narrow_groups_kernels_here());
}
const NarrowGroupsKernels& narrow_groups_kernels(const Target& target, const Conv2dProblem& p) {
  GABLE_CPU_RETURN_OF(target, narrow_groups_kernels_for(p));
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
