// The micro-kernel of 1x1 convolutions with few output channels, compiled once a target. A vector holds neighbouring
// input channels of one pixel, so that all lanes are used however few outputs there are, and values of 16 bits become
// f32 as they are loaded.
// Tile: pixels x outputs, 3 x 8 to 8 x 1 accumulators with 32 registers. Inner step, of one vector of channels: a load
// for each pixel and each output, a product for each pair of them. 3 x 8: 24 FMA in 12 cycles at 2 a cycle, 11 loads
// from L1 and L2. A tile prefetches the next tile's pixels. At its end four accumulators at a time are summed over
// their lanes by 3 additions and 6 shuffles, and then over the vector's blocks.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/few_outputs/few_outputs_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/few_outputs/few_outputs_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

#if HWY_TARGET != HWY_SCALAR
/// The sum over a vector's blocks of 128 bits.
template <class D>
HWY_INLINE auto sum_of_blocks([[maybe_unused]] D d, hn::Vec<D> value) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return value;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, value), hn::UpperHalf(half, value)));
  }
}
#endif

/// The sums of the lanes of four vectors, to four floats.
HWY_INLINE void store_four_sums(V a, V b, V c, V e, float* sums) {
  const F d;
#if HWY_TARGET == HWY_SCALAR
  const V all[] = {a, b, c, e};
  for (int i = 0; i < 4; ++i) hn::Store(all[i], d, sums + i);
#else
  const hn::Repartition<std::uint64_t, F> dd;
  const auto ab = hn::BitCast(dd, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(dd, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const V four =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, ab, ce)), hn::BitCast(d, hn::InterleaveUpper(dd, ab, ce)));
  hn::StoreU(sum_of_blocks(d, four), hn::CappedTag<float, 4>(), sums);
#endif
}

template <DType kType, int kOutputs>
struct FewOutputsTile {
  using T = Storage<kType>;
  /// As many pixels as leave registers for the step's inputs and one weight.
  static constexpr int kPixels = std::min(8, (kRegisters - 1) / (kOutputs + 1));
  static constexpr int kSums = kPixels * kOutputs;
  static_assert((kSums + 3) / 4 * 4 <= kFewOutputsTile);

  using Sums = V[kPixels][kOutputs];
  using Inputs = const T* [kPixels];

  static HWY_INLINE void add(const V (&in)[kPixels], const float* weights, Sums& sums) {
    const F d;
    HWY_UNROLL(8) for (int k = 0; k < kOutputs; ++k) {
      const V weight = hn::LoadU(d, weights + k * static_cast<std::int64_t>(hn::Lanes(d)));
      HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) {
        sums[i][k] = add_product_of_tile<kSums>(d, in[i], weight, sums[i][k]);
      }
    }
  }

  /// All channels of the tile's pixels. `ahead` elements further lie the next tile's.
  static HWY_INLINE void reduce(const FewOutputsCall& call, const Inputs& x, std::int64_t ahead, Sums& sums) {
    const F d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const float* weights = call.weights;
    std::int64_t channel = 0;
    for (; channel + lanes <= call.channels; channel += lanes, weights += kOutputs * lanes) {
      V in[kPixels];
      HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) {
        in[i] = load_as_f32<kType>(d, x[i] + channel);
        hwy::Prefetch(x[i] + channel + ahead);
      }
      add(in, weights, sums);
    }
    if (channel == call.channels) return;
    const int rest = static_cast<int>(call.channels - channel);
    V in[kPixels];
    HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) in[i] = load_first_as_f32<kType>(d, x[i] + channel, rest);
    add(in, weights, sums);
  }

  static HWY_INLINE void store(const Sums& sums, float* to) {
    const F d;
    const auto at = [&](int i) HWY_ATTR { return i < kSums ? sums[i / kOutputs][i % kOutputs] : hn::Zero(d); };
    HWY_UNROLL(8) for (int i = 0; i < kSums; i += 4) store_four_sums(at(i), at(i + 1), at(i + 2), at(i + 3), to + i);
  }

  static void run(const FewOutputsCall& call) {
    const F d;
    const T* const begin = static_cast<const T*>(call.x);
    for (std::int64_t first = 0; first < call.pixels; first += kPixels) {
      Inputs x;  // a run's last tile reads its last pixel several times
      HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) {
        x[i] = begin + std::min(first + i, call.pixels - 1) * call.x_pixel;
      }
      Sums sums;
      HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) {
        HWY_UNROLL(8) for (int k = 0; k < kOutputs; ++k) sums[i][k] = hn::Zero(d);
      }
      reduce(call, x, kPixels * call.x_pixel, sums);
      store(sums, call.sums + first * kOutputs);
    }
  }
};

template <DType kType>
void finish_outputs(const FinishOutputsCall& call) {
  const F d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto* const y = static_cast<Storage<kType>*>(call.y);
  const V least = hn::Set(d, call.least);
  std::int64_t at = 0;  // in the bias
  for (std::int64_t i = 0; i < call.count; i += lanes) {
    const V value = at_least(d, least, hn::Add(hn::LoadU(d, call.sums + i), hn::LoadU(d, call.bias + at)));
    if (i + lanes <= call.count) {
      store_f32_as<kType>(d, value, y + i);
    } else {
      store_first_f32_as<kType>(d, value, y + i, static_cast<int>(call.count - i));
    }
    at = at + lanes == call.period ? 0 : at + lanes;
  }
}

template <DType kType, int kOutputs>
void fill_outputs(FewOutputsKernels& kernels) {
  using Tile = FewOutputsTile<kType, kOutputs>;
  kernels.sum[static_cast<std::size_t>(kType)][kOutputs] = &Tile::run;
  kernels.pixels[kOutputs] = Tile::kPixels;
  if constexpr (kOutputs > 1) fill_outputs<kType, kOutputs - 1>(kernels);
}

template <DType kType>
void fill_type(FewOutputsKernels& kernels) {
  fill_outputs<kType, kMaxFewOutputs>(kernels);
  kernels.finish[static_cast<std::size_t>(kType)] = &finish_outputs<kType>;
}

FewOutputsKernels make_few_outputs_kernels() {
  FewOutputsKernels kernels{};
  kernels.lanes = static_cast<int>(hn::Lanes(F()));
  fill_type<DType::f32>(kernels);
  fill_type<DType::f16>(kernels);
  fill_type<DType::bf16>(kernels);
  return kernels;
}

const FewOutputsKernels& few_outputs_kernels_here() {
  static const FewOutputsKernels kernels = make_few_outputs_kernels();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const FewOutputsKernels& few_outputs_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, few_outputs_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
