// Depthwise 3x3, compiled once a target. A tile is 2 output rows x 4 pixels of one vector of channels: eight
// accumulators and nine weight vectors in registers (18 of 32 with AVX-512). With stride 1 it loads 4 x 6 input vectors
// and 9 of weights for 72 FMA: 33 loads in 36 cycles at 2 FMA a cycle. The loop over channels is inside the loop over
// pixels: each of the 24 input streams is then linear for a block of channels, and hardware prefetchers follow it. One
// vector of channels down the whole row was measured 1.5x slower. A pair of bf16 vectors needs half the loads. Its
// conversion to f32 costs 1 operation a vector, that of both results to bf16 costs 5. The two halves are computed one
// after the other: together they would not fit the registers. The two input rows that a row pair shares with the next
// come from L1 or L2. The first and the last tile of a row may skip a column of taps, which is padding.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/depthwise/depthwise_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kDepthwisePixels = 4;
#else
constexpr int kDepthwisePixels = 2;
#endif

/// 16-bit elements two by two, as 32-bit lanes of which the first element is the lower half.
template <class DU>
HWY_INLINE hn::Vec<DU> load_pairs(DU d, const std::uint16_t* x) {
#if HWY_TARGET == HWY_SCALAR
  std::uint32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  return hn::Set(d, pair);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint16_t, DU>(), x));
#endif
}
template <class DU>
HWY_INLINE void store_pairs([[maybe_unused]] DU d, hn::Vec<DU> pairs, std::uint16_t* y) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint32_t pair = hn::GetLane(pairs);
  std::memcpy(y, &pair, sizeof(pair));
#else
  const hn::Repartition<std::uint16_t, DU> d16;
  hn::StoreU(hn::BitCast(d16, pairs), d16, y);
#endif
}

/// The upper half of each lane is bf16, rounded to nearest even. NaNs need no care: those that bf16 operands lead to
/// are quiet and have nothing in the lower half, so that rounding leaves them alone; the bias has no others.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> rounded_to_bf16(D, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
}

enum class Half { whole, even, odd };

template <DType kType, bool kPairs, int kStride, int kRows>
struct DepthwiseRow {
  using D = hn::ScalableTag<float>;
  using DU = hn::RebindToUnsigned<D>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;
  static constexpr int kSide = kDepthwiseTaps;
  static constexpr int kInputRows = (kRows - 1) * kStride + kSide;

  static HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(D())); }
  static HWY_INLINE std::int64_t group() { return kPairs ? 2 * lanes() : lanes(); }

  template <Half kHalf>
  static HWY_INLINE V load(const T* x) {
    const D d;
    if constexpr (kHalf == Half::even) {
      return hn::BitCast(d, hn::ShiftLeft<16>(load_pairs(DU(), x)));
    } else if constexpr (kHalf == Half::odd) {
      return hn::BitCast(d, hn::And(load_pairs(DU(), x), hn::Set(DU(), 0xffff0000u)));
    } else {
      return load_as_f32<kType>(d, x);
    }
  }

  static HWY_INLINE V finished(const DepthwiseCall& call, V value) { return call.relu ? relu(D(), value) : value; }

  static HWY_INLINE void store(const DepthwiseCall& call, V value, T* y) {
    const D d;
    if constexpr (kType == DType::f32) {
      if (call.non_temporal) {
        hn::Stream(value, d, y);
        return;
      }
    }
    store_f32_as<kType>(d, value, y);
  }

  /// Prefetches what the next pair of rows will read and this one does not.
  template <int kPixels>
  static HWY_INLINE void prefetch(const DepthwiseCall& call, std::int64_t first) {
    HWY_UNROLL(4) for (int ir = kInputRows - kRows * kStride; ir < kInputRows; ++ir) {
      const char* x = static_cast<const char*>(call.rows[static_cast<std::size_t>(ir)]) + call.prefetch_bytes;
      HWY_UNROLL(8) for (int ic = 0; ic < kPixels * kStride; ++ic) {
        __builtin_prefetch(x + (first + ic * call.channels) * static_cast<std::int64_t>(sizeof(T)), 0, 2);
      }
    }
  }

  /// One vector of channels of each output. `weights` and `bias` are the vector's part of its group.
  template <int kPixels, int kFirst, int kDropped, Half kHalf>
  static HWY_INLINE void accumulate(const DepthwiseCall& call, std::int64_t first, const float* weights,
                                    const float* bias, V (&acc)[kRows][kPixels]) {
    const D d;
    constexpr int kColumns = (kPixels - 1) * kStride + kSide;
    V taps[kSide * kSide];
    HWY_UNROLL(9) for (int tap = 0; tap < kSide * kSide; ++tap) taps[tap] = hn::LoadU(d, weights + tap * group());
    HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
      HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) acc[row][p] = hn::LoadU(d, bias);
    }
    HWY_UNROLL(5) for (int ir = 0; ir < kInputRows; ++ir) {
      const T* x = static_cast<const T*>(call.rows[static_cast<std::size_t>(ir)]);
      HWY_UNROLL(9) for (int ic = kFirst; ic < kColumns - kDropped; ++ic) {
        const V input = load<kHalf>(x + (first + ic * call.channels));
        HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
          const int kh = ir - row * kStride;
          if (kh < 0 || kh >= kSide) continue;
          HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) {
            const int kw = ic - p * kStride;
            if (kw >= 0 && kw < kSide) acc[row][p] = hn::MulAdd(input, taps[kh * kSide + kw], acc[row][p]);
          }
        }
      }
    }
  }

  /// kPixels outputs from `pixel` on; columns of taps outside [kFirst, columns - kDropped) are padding.
  template <int kPixels, int kFirst, int kDropped>
  static HWY_INLINE void tile(const DepthwiseCall& call, std::int64_t channel, std::int64_t pixel, const float* weights,
                              const float* bias) {
    const std::int64_t first = (pixel * kStride - call.left) * call.channels + channel;
    if (call.prefetch_bytes != 0) prefetch<kPixels>(call, first);
    const auto output = [&](int row, int p) HWY_ATTR {
      return static_cast<T*>(call.y[static_cast<std::size_t>(row)]) + (pixel + p) * call.channels + channel;
    };
    V acc[kRows][kPixels];
    if constexpr (kPairs) {
      // One half after the other: the accumulators of both and the taps would not fit the registers.
      const DU du;
      hn::Vec<DU> even[kRows][kPixels];
      accumulate<kPixels, kFirst, kDropped, Half::even>(call, first, weights, bias, acc);
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) {
          even[row][p] = hn::ShiftRight<16>(rounded_to_bf16(D(), finished(call, acc[row][p])));
        }
      }
      asm volatile("" : : : "memory");  // keeps the inputs from being held on the stack: they are in L1
      accumulate<kPixels, kFirst, kDropped, Half::odd>(call, first, weights + lanes(), bias + lanes(), acc);
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) {
          const auto odd = hn::And(rounded_to_bf16(D(), finished(call, acc[row][p])), hn::Set(du, 0xffff0000u));
          store_pairs(du, hn::Or(even[row][p], odd), output(row, p));
        }
      }
    } else {
      accumulate<kPixels, kFirst, kDropped, Half::whole>(call, first, weights, bias, acc);
      HWY_UNROLL(2) for (int row = 0; row < kRows; ++row) {
        HWY_UNROLL(4) for (int p = 0; p < kPixels; ++p) store(call, finished(call, acc[row][p]), output(row, p));
      }
    }
  }

  /// One tile of pixels through a block of channels.
  template <int kPixels, int kFirst, int kDropped>
  static HWY_INLINE void channel_block(const DepthwiseCall& call, std::int64_t pixel, std::int64_t first,
                                       std::int64_t last) {
    for (std::int64_t next = first; next < last; next += group()) {
      const std::int64_t channel = std::min(next, call.channels - group());
      tile<kPixels, kFirst, kDropped>(call, channel, pixel, call.weights + next * kSide * kSide, call.bias + next);
    }
  }

  /// Rows longer than a tile: the last tile overlaps the one before it where tiles do not divide the row.
  static HWY_INLINE void tiles(const DepthwiseCall& call, std::int64_t first, std::int64_t last) {
    constexpr int kPixels = kDepthwisePixels;
    const std::int64_t end = call.pixels - kPixels;
    if (call.left == 1) {
      channel_block<kPixels, 1, 0>(call, 0, first, last);
    } else {
      channel_block<kPixels, 0, 0>(call, 0, first, last);
    }
    for (std::int64_t pixel = kPixels; pixel < end; pixel += kPixels) {
      channel_block<kPixels, 0, 0>(call, pixel, first, last);
    }
    if (call.right_outside) {
      channel_block<kPixels, 0, 1>(call, end, first, last);
    } else {
      channel_block<kPixels, 0, 0>(call, end, first, last);
    }
  }

  static HWY_INLINE void single_pixels(const DepthwiseCall& call, std::int64_t first, std::int64_t last) {
    std::int64_t pixel = 0;
    if (call.left == 1) channel_block<1, 1, 0>(call, pixel++, first, last);
    const std::int64_t end = call.pixels - (call.right_outside ? 1 : 0);
    for (; pixel < end; ++pixel) channel_block<1, 0, 0>(call, pixel, first, last);
    if (call.right_outside) channel_block<1, 0, 1>(call, pixel, first, last);
  }

  static void run(const DepthwiseCall& caller) {
    const DepthwiseCall call = caller;  // its own, so that stores to y cannot change it
    for (std::int64_t first = 0; first < call.channels; first += call.block_channels) {
      const std::int64_t last = std::min(first + call.block_channels, call.channels);
      if (call.pixels > kDepthwisePixels) {
        tiles(call, first, last);
      } else {
        single_pixels(call, first, last);
      }
    }
  }
};

template <DType kType, bool kPairs>
void fill_depthwise(DepthwiseFunction (&rows)[2][kDepthwiseRows]) {
  rows[0][0] = &DepthwiseRow<kType, kPairs, 1, 1>::run;
  rows[0][1] = &DepthwiseRow<kType, kPairs, 1, 2>::run;
  rows[1][0] = &DepthwiseRow<kType, kPairs, 2, 1>::run;
  rows[1][1] = &DepthwiseRow<kType, kPairs, 2, 2>::run;
}

const DepthwiseKernels& depthwise_kernels_here() {
  static const DepthwiseKernels kernels = [] {
    DepthwiseKernels made{};
    made.lanes = static_cast<int>(hn::Lanes(hn::ScalableTag<float>()));
    made.pixels = kDepthwisePixels;
    fill_depthwise<DType::f32, false>(made.rows[static_cast<int>(DType::f32)]);
    fill_depthwise<DType::f16, false>(made.rows[static_cast<int>(DType::f16)]);
    fill_depthwise<DType::bf16, false>(made.rows[static_cast<int>(DType::bf16)]);
    fill_depthwise<DType::bf16, true>(made.pairs);
    return made;
  }();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const DepthwiseKernels& depthwise_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, depthwise_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
