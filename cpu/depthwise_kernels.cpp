// Depthwise 3x3, compiled once a target. A tile is 2 output rows x 4 pixels of one vector of channels: eight sums and
// nine weight vectors in registers (18 of 32 with AVX-512). With stride 1 it loads 4 x 6 input vectors and 9 of weights
// for 72 FMA: 33 loads in 36 cycles at 2 FMA a cycle. Channels inside pixels: each of the 24 input streams is linear
// for a block of channels, which keeps the prefetchers with it; measured, one vector down the whole row was 1.5x
// slower. The two input rows that a pair shares with the next one come from L1 or L2. The first and the last pixel of a
// row, which may miss a column of taps, are tiles of their own.
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

  /// Asks for what the next pair of rows will read and this one does not, a row pair ahead.
  template <int kPixels>
  static HWY_INLINE void prefetch(const DepthwiseCall& call, std::int64_t first) {
    HWY_UNROLL(4) for (int ir = kInputRows - kRows * kStride; ir < kInputRows; ++ir) {
      const char* x = static_cast<const char*>(call.rows[static_cast<std::size_t>(ir)]) + call.prefetch_bytes;
      HWY_UNROLL(8) for (int ic = 0; ic < kPixels * kStride; ++ic) {
        __builtin_prefetch(x + (first + ic * call.channels) * static_cast<std::int64_t>(sizeof(T)), 0, 2);
      }
    }
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
    if (call.prefetch_bytes != 0) prefetch<kPixels>(call, first);
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

  /// One tile of pixels through a block of channels; the last vector of channels overlaps the one before it where they
  /// do not divide.
  template <int kPixels, int kFirst, int kDropped>
  static HWY_INLINE void channel_block(const DepthwiseCall& call, std::int64_t pixel, std::int64_t first,
                                       std::int64_t last) {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t next = first; next < last; next += lanes) {
      const std::int64_t channel = std::min(next, call.channels - lanes);
      V weights[kSide * kSide];
      HWY_UNROLL(9) for (int tap = 0; tap < kSide * kSide; ++tap) {
        weights[tap] = hn::LoadU(d, call.weights + tap * call.channels + channel);
      }
      const V bias = call.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, call.bias + channel);
      tile<kPixels, kFirst, kDropped>(call, channel, pixel, weights, bias);
    }
  }

  static void run(const DepthwiseCall& caller) {
    const DepthwiseCall call = caller;  // its own, so that stores to y cannot change it
    for (std::int64_t first = 0; first < call.channels; first += call.block_channels) {
      const std::int64_t last = std::min(first + call.block_channels, call.channels);
      std::int64_t pixel = 0;
      if (call.left == 1) channel_block<1, 1, 0>(call, pixel++, first, last);
      const std::int64_t end = call.pixels - (call.right_outside ? 1 : 0);
      for (; pixel + kDepthwisePixels <= end; pixel += kDepthwisePixels) {
        channel_block<kDepthwisePixels, 0, 0>(call, pixel, first, last);
      }
      for (; pixel < end; ++pixel) channel_block<1, 0, 0>(call, pixel, first, last);
      if (call.right_outside) channel_block<1, 0, 1>(call, pixel, first, last);
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
