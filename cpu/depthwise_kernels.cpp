// Depthwise 3x3, compiled once a target. For one vector of channels, one or two output rows at a time: nine weight
// vectors and 2 rows x 4 pixels of sums stay in registers (18 of 32 with AVX-512). A tile of stride 1 loads 4 x 6 input
// vectors for 72 FMA; 512 B a channel vector of 8 outputs in, 512 B out, 1,152 FLOP a lane group. The two input rows
// that a pair shares with the next one come from L1 or L2.
// The first and the last pixel of a row, which may miss a column of taps, are tiles of their own.
#include "cpu/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kDepthwisePixels = 4;
#else
constexpr int kDepthwisePixels = 2;
#endif

template <Type kType, int kStride, int kRows>
struct DepthwiseRow {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;
  static constexpr int kSide = kDepthwiseTaps;
  static constexpr int kInputRows = (kRows - 1) * kStride + kSide;

  static HWY_INLINE void store(const DepthwiseCall& call, V value, T* y) {
    const D d;
    if (call.relu) value = relu(d, value);
    if constexpr (kType == Type::f32) {
      if (call.streams) {
        hn::Stream(value, d, y);
        return;
      }
    }
    store_f32_as<kType>(d, value, y);
  }

  /// kPixels outputs from `pixel` on; columns of taps outside [kFirst, columns - kDropped) are padding.
  template <int kPixels, int kFirst, int kDropped>
  static HWY_INLINE void tile(const DepthwiseCall& call, std::int64_t channel, std::int64_t pixel,
                              const V (&weights)[kSide * kSide], V bias) {
    const D d;
    constexpr int kColumns = (kPixels - 1) * kStride + kSide;
    V sum[kRows][kPixels];
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) sum[row][p] = bias;
    }
    const std::int64_t first = (pixel * kStride - call.left) * call.channels + channel;
    HWY_UNROLL(5) for (int ir = 0; ir < kInputRows; ++ir) {
      const T* x = static_cast<const T*>(call.rows[static_cast<std::size_t>(ir)]);
      HWY_UNROLL(9) for (int ic = kFirst; ic < kColumns - kDropped; ++ic) {
        const V input = load_as_f32<kType>(d, x + (first + ic * call.channels));
        HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
          const int kh = ir - row * kStride;
          if (kh < 0 || kh >= kSide) continue;
          HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) {
            const int kw = ic - p * kStride;
            if (kw >= 0 && kw < kSide) sum[row][p] = hn::MulAdd(input, weights[kh * kSide + kw], sum[row][p]);
          }
        }
      }
    }
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      T* y = static_cast<T*>(call.y[static_cast<std::size_t>(row)]) + pixel * call.channels + channel;
      HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) store(call, sum[row][p], y + p * call.channels);
    }
  }

  static HWY_INLINE void channel_vector(const DepthwiseCall& call, std::int64_t channel) {
    const D d;
    V weights[kSide * kSide];
    HWY_UNROLL(9) for (int tap = 0; tap < kSide * kSide; ++tap) {
      weights[tap] = hn::LoadU(d, call.weights + tap * call.channels + channel);
    }
    const V bias = call.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, call.bias + channel);
    std::int64_t pixel = 0;
    if (call.left == 1) {
      tile<1, 1, 0>(call, channel, 0, weights, bias);
      pixel = 1;
    }
    const std::int64_t end = call.pixels - (call.right_outside ? 1 : 0);
    for (; pixel + kDepthwisePixels <= end; pixel += kDepthwisePixels) {
      tile<kDepthwisePixels, 0, 0>(call, channel, pixel, weights, bias);
    }
    for (; pixel < end; ++pixel) tile<1, 0, 0>(call, channel, pixel, weights, bias);
    if (call.right_outside) tile<1, 0, 1>(call, channel, pixel, weights, bias);
  }

  /// The last vector of channels overlaps the one before it where they do not divide.
  static void run(const DepthwiseCall& call) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
    for (std::int64_t channel = 0; channel < call.channels; channel += lanes) {
      channel_vector(call, std::min(channel, call.channels - lanes));
    }
  }
};

template <Type kType>
void fill_depthwise(DepthwiseKernels& kernels) {
  auto& rows = kernels.rows[static_cast<int>(kType)];
  rows[0][0] = &DepthwiseRow<kType, 1, 1>::run;
  rows[0][1] = &DepthwiseRow<kType, 1, 2>::run;
  rows[1][0] = &DepthwiseRow<kType, 2, 1>::run;
  rows[1][1] = &DepthwiseRow<kType, 2, 2>::run;
}

const DepthwiseKernels& depthwise_kernels_here() {
  static const DepthwiseKernels kernels = [] {
    DepthwiseKernels made{};
    made.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
    fill_depthwise<Type::f32>(made);
    fill_depthwise<Type::f16>(made);
    fill_depthwise<Type::bf16>(made);
    return made;
  }();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const DepthwiseKernels& depthwise_kernels(const Target& target) {
#define GABLE_CPU_CASE(target_id, ns, name) \
  if (target.id == (target_id)) return ns::depthwise_kernels_here();
  GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_CASE)
#undef GABLE_CPU_CASE
  return HWY_STATIC_DISPATCH(depthwise_kernels_here)();
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
