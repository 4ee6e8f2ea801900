// The micro-kernel of convolutions with few output channels, compiled once a target. A vector holds neighbouring input
// channels of one pixel, so that all lanes are used however few outputs there are, and values of 16 bits become f32 as
// they are loaded. Without dilation, the columns of a window's row are neighbours too, and are one run of channels.
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

#include "cpu/common/cpuid.h"
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

#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
#define GABLE_CPU_PAIR_PRODUCTS 1
#else
#define GABLE_CPU_PAIR_PRODUCTS 0
#endif

/// Values of f32 or 16 bits, which are multiplied in f32.
template <DType kType>
struct WidenedInputs {
  using T = Storage<kType>;
  static HWY_INLINE std::int64_t step() { return static_cast<std::int64_t>(hn::Lanes(F())); }
  static HWY_INLINE V load(const T* x) { return load_as_f32<kType>(F(), x); }
  static HWY_INLINE V load_first(const T* x, int count) { return load_first_as_f32<kType>(F(), x, count); }
  template <int kSums>
  static HWY_INLINE V add_product(V in, V weight, V sum) {
    return add_product_of_tile<kSums>(F(), in, weight, sum);
  }
};

#if GABLE_CPU_PAIR_PRODUCTS
/// A lane has a pair of bf16, and gets the products of both. The instruction is not one of this target's:
/// few_outputs_dot kernels run on CPUs that have it.
struct PairedInputs {
  using T = std::uint16_t;
  static HWY_INLINE std::int64_t step() { return 2 * static_cast<std::int64_t>(hn::Lanes(F())); }
  static HWY_INLINE V load(const T* x) { return hn::BitCast(F(), hn::LoadU(hn::Repartition<T, F>(), x)); }
  static HWY_INLINE V load_first(const T* x, int count) {
    return hn::BitCast(F(), HWY_NAMESPACE::load_first(hn::Repartition<T, F>(), x, count));
  }
  template <int kSums>
  static HWY_INLINE V add_product(V in, V weight, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(in.raw), "v"(weight.raw));
    return sum;
  }
};
#endif

template <class Input, int kOutputs>
struct FewOutputsTile {
  using T = typename Input::T;
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
        sums[i][k] = Input::template add_product<kSums>(in[i], weight, sums[i][k]);
      }
    }
  }

  /// A run of all pixels, which lies `at` elements after them. What lies `ahead` elements further is prefetched, unless
  /// `ahead` is 0. Returns the weights of the next run.
  static HWY_INLINE const float* add_run(const Inputs& x, std::int64_t at, std::int64_t channels, std::int64_t ahead,
                                         const float* weights, Sums& sums) {
    const F d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d)), step = Input::step();
    const std::int64_t end = at + channels;
    for (; at + step <= end; at += step, weights += kOutputs * lanes) {
      V in[kPixels];
      HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) { in[i] = Input::load(x[i] + at); }
      if (ahead != 0) {
        HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) hwy::Prefetch(x[i] + at + ahead);
      }
      add(in, weights, sums);
    }
    if (at == end) return weights;
    const int rest = static_cast<int>(end - at);
    V in[kPixels];
    HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) in[i] = Input::load_first(x[i] + at, rest);
    add(in, weights, sums);
    return weights + kOutputs * lanes;
  }

  static HWY_INLINE void store(const Sums& sums, float* to) {
    const F d;
    const auto at = [&](int i) HWY_ATTR { return i < kSums ? sums[i / kOutputs][i % kOutputs] : hn::Zero(d); };
    HWY_UNROLL(8) for (int i = 0; i < kSums; i += 4) store_four_sums(at(i), at(i + 1), at(i + 2), at(i + 3), to + i);
  }

  static void run(const FewOutputsCall& call) {
    const F d;
    const T* const begin = static_cast<const T*>(call.x);
    // Of the next tile. In a window that is what its last row reads first, a share of it in each row: to prefetch for
    // each tap would take the load slots of the products.
    const bool window = call.rows * call.runs > 1 || call.channels > call.x_pixel;
    const std::int64_t ahead = window ? 0 : kPixels * call.x_pixel, line = 64 / sizeof(T);
    const std::int64_t reach = (call.rows - 1) * call.x_row + (call.runs - 1) * call.x_run + call.channels;
    const std::int64_t share = window && call.rows > 0 ? kPixels * call.x_pixel / call.rows : 0;
    for (std::int64_t first = 0; first < call.pixels; first += kPixels) {
      Inputs x;  // a run's last tile reads its last pixel several times
      HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) {
        x[i] = begin + std::min(first + i, call.pixels - 1) * call.x_pixel;
      }
      Sums sums;
      HWY_UNROLL(8) for (int i = 0; i < kPixels; ++i) {
        HWY_UNROLL(8) for (int k = 0; k < kOutputs; ++k) sums[i][k] = hn::Zero(d);
      }
      const float* weights = call.weights;
      const T* next = x[0] + (kPixels - 1) * call.x_pixel + reach;
      for (std::int64_t row = 0; row < call.rows; ++row) {
        for (std::int64_t i = 0; i < share; i += line) hwy::Prefetch(next + i);
        next += share;
        for (std::int64_t run = 0; run < call.runs; ++run) {
          const std::int64_t at = row * call.x_row + run * call.x_run;
          weights = add_run(x, at, call.channels, ahead, weights, sums);
        }
      }
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

template <class Input, int kOutputs = kMaxFewOutputs>
void fill_outputs(DType type, FewOutputsKernels& kernels) {
  using Tile = FewOutputsTile<Input, kOutputs>;
  kernels.sum[static_cast<std::size_t>(type)][kOutputs] = &Tile::run;
  kernels.pixels[kOutputs] = Tile::kPixels;
  if constexpr (kOutputs > 1) fill_outputs<Input, kOutputs - 1>(type, kernels);
}

template <DType kType, class Input = WidenedInputs<kType>>
void fill_type(FewOutputsKernels& kernels) {
  fill_outputs<Input>(kType, kernels);
  kernels.finish[static_cast<std::size_t>(kType)] = &finish_outputs<kType>;
}

FewOutputsKernels make_few_outputs_kernels() {
  FewOutputsKernels kernels{};
  kernels.step = kernels.lanes = static_cast<int>(hn::Lanes(F()));
  fill_type<DType::f32>(kernels);
  fill_type<DType::f16>(kernels);
  fill_type<DType::bf16>(kernels);
  return kernels;
}

#if GABLE_CPU_PAIR_PRODUCTS
FewOutputsKernels make_few_outputs_dot_kernels() {
  FewOutputsKernels kernels{};
  kernels.lanes = static_cast<int>(hn::Lanes(F()));
  kernels.step = 2 * kernels.lanes;
  fill_type<DType::bf16, PairedInputs>(kernels);
  return kernels;
}
#endif

const FewOutputsKernels& few_outputs_kernels_here() {
  static const FewOutputsKernels kernels = make_few_outputs_kernels();
  return kernels;
}

#if GABLE_CPU_PAIR_PRODUCTS
const FewOutputsKernels& few_outputs_dot_kernels_here() {
  static const FewOutputsKernels kernels = make_few_outputs_dot_kernels();
  return kernels;
}
#endif
#undef GABLE_CPU_PAIR_PRODUCTS

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const FewOutputsKernels& few_outputs_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, few_outputs_kernels_here());
}

std::string missing_few_outputs_dot() { return missing_bf16_dot(); }

const FewOutputsKernels& few_outputs_dot_kernels() {
#if defined(__x86_64__) && (HWY_TARGETS & HWY_AVX3)
  return N_AVX3::few_outputs_dot_kernels_here();
#else
  static const FewOutputsKernels none{};
  return none;
#endif
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
