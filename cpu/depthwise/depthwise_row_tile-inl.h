// The register tile of two rows of outputs with a 3x3 window. Registers: two accumulators for each output of a row, 9
// weights, 1 input. With stride 1 and four outputs a row it loads 4 x 6 vectors of input and 9 of weights for 72 FMA,
// where a tile of one row of eight loads 39; of the input that a row of tiles reads again from L2, it reads 4 rows for
// 2 of outputs instead of 6.
#if defined(GABLE_CPU_DEPTHWISE_ROW_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_DEPTHWISE_ROW_TILE_INL_H_
#undef GABLE_CPU_DEPTHWISE_ROW_TILE_INL_H_
#else
#define GABLE_CPU_DEPTHWISE_ROW_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/common/vector-inl.h"
#include "cpu/depthwise/depthwise_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
/// The most outputs in a row of a row tile. Short rows take eight, as two tiles of four: a tile's fixed time then
/// counts more than its loads. Long rows take four, whose input lines stay in L1 until the next tile. With 16 registers
/// there is room for three.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kShortRowOutputs = kMaxTileOutputs;
constexpr int kLongRowOutputs = 4;
#else
constexpr int kShortRowOutputs = 3;
constexpr int kLongRowOutputs = 3;
#endif

template <DType kType, int kOutputs, int kStride, bool kShifts>
struct DepthwiseRowTile {
  using Tile = DepthwiseTile<kType, kOutputs, kStride, kShifts>;
  using D = typename Tile::D;
  using V = typename Tile::V;
  using T = typename Tile::T;
  using Stored = T;
  static constexpr int kTaps = kRowTileTaps;
  static constexpr int kInputRows = (kRowTileRows - 1) * kStride + kTaps;
  static constexpr int kPositions = (kOutputs - 1) * kStride + kTaps;
  static constexpr bool kPairs = Tile::kPairs;

  /// Which positions are outside the image. The compiler knows the first and the last ones, which are all of them where
  /// the padding is one pixel: with a branch for each position instead, such tiles took up to 1.8 times as long,
  /// depending on where the code lay.
  enum class Outside { none, first, last, first_and_last, any };

  /// Adds the products of one input, `position` of the tile's row `input_row`, to the outputs that read it.
  static HWY_INLINE void add_products(V input, int input_row, int position, const V (&taps)[kTaps * kTaps],
                                      V (&acc)[kRowTileRows][kOutputs]) {
    HWY_UNROLL(2) for (int row = 0; row < kRowTileRows; ++row) {
      const int kh = input_row - row * kStride;
      if (kh < 0 || kh >= kTaps) continue;
      HWY_UNROLL(8) for (int output = 0; output < kOutputs; ++output) {
        const int kw = position - output * kStride;
        if (kw >= 0 && kw < kTaps) acc[row][output] = hn::MulAdd(input, taps[kh * kTaps + kw], acc[row][output]);
      }
    }
  }

  template <Outside kOutside>
  static HWY_INLINE void multiply_add(const DepthwiseTileCall& call, const T* first, const float* weights,
                                      V (&acc)[kRowTileRows][kOutputs]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    constexpr bool kFirst = kOutside == Outside::first || kOutside == Outside::first_and_last;
    constexpr bool kLast = kOutside == Outside::last || kOutside == Outside::first_and_last;
    V taps[kTaps * kTaps];
    HWY_UNROLL(9) for (int tap = 0; tap < kTaps * kTaps; ++tap) taps[tap] = hn::LoadU(d, weights + tap * lanes);
    HWY_UNROLL(5) for (int input_row = 0; input_row < kInputRows; ++input_row) {
      const T* x = first + input_row * call.x.row;
      HWY_UNROLL(10) for (int i = 0; i < kPositions; ++i) {
        if (!(kFirst && i == 0) && !(kLast && i == kPositions - 1)) {
          const V input = Tile::template load<kOutside != Outside::any>(x, call.taps.positions[0], i);
          add_products(input, input_row, i, taps, acc);
        }
        x += call.x.step;
        Tile::next_position(x);
      }
    }
  }

  /// Prefetches the lines that the next row of tiles will read and this one does not.
  static HWY_INLINE void prefetch(const DepthwiseTileCall& call, const T* first) {
    const std::int64_t step = call.x.step * static_cast<std::int64_t>(sizeof(T));
    HWY_UNROLL(4) for (int row = kInputRows - kRowTileRows * kStride; row < kInputRows; ++row) {
      const char* line = reinterpret_cast<const char*>(first + row * call.x.row) + call.x.prefetch_bytes;
      HWY_UNROLL(8) for (int i = 0; i < kOutputs * kStride; ++i) {
        __builtin_prefetch(line, 0, 2);
        line += step;
      }
    }
  }

  /// One vector of lanes. kPart: call.y.part of them are stored.
  template <bool kPart>
  static HWY_INLINE void tile_of(const DepthwiseTileCall& call, const T* x, T* y, const float* bias,
                                 std::int64_t weights_at) {
    const D d;
    if (HWY_UNLIKELY(call.x.prefetch_bytes != 0)) prefetch(call, x);
    const V first = Tile::quiet(hn::LoadU(d, bias));
    V acc[kRowTileRows][kOutputs];
    HWY_UNROLL(2) for (int row = 0; row < kRowTileRows; ++row) {
      HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) acc[row][i] = first;
    }
    constexpr Positions kLast = Positions{1} << (kPositions - 1), kAll = 2 * kLast - 1;
    const Positions outside = kAll & ~call.taps.positions[0];
    const float* weights = call.weights.first + weights_at;
    if (HWY_LIKELY(outside == 0)) {
      multiply_add<Outside::none>(call, x, weights, acc);
    } else if (outside == 1) {
      multiply_add<Outside::first>(call, x, weights, acc);
    } else if (outside == kLast) {
      multiply_add<Outside::last>(call, x, weights, acc);
    } else if (outside == (kLast | 1)) {
      multiply_add<Outside::first_and_last>(call, x, weights, acc);
    } else {
      multiply_add<Outside::any>(call, x, weights, acc);
    }
    HWY_UNROLL(2) for (int row = 0; row < kRowTileRows; ++row) {
      if constexpr (kPart) {
        finish_part(call, acc[row], y + row * call.y.row);
      } else {
        Tile::finish(call, acc[row], y + row * call.y.row);
      }
    }
  }
  static HWY_INLINE void tile(const DepthwiseTileCall& call, const T* x, T* y, const float* bias,
                              std::int64_t weights_at) {
    tile_of<false>(call, x, y, bias, weights_at);
  }

#if HWY_TARGET == HWY_AVX3
  /// Activation and stores of a row of fewer channels than lanes. The tile's other row may lie in the next pixels, so
  /// these must stay as they are.
  static HWY_INLINE void finish_part(const DepthwiseTileCall& call, const V (&acc)[kOutputs], T* y) {
    // Narrow stores: where one crosses a cache line, the lanes that it leaves out count as well.
    constexpr int kHalf = static_cast<int>(hn::MaxLanes(D())) / 2;
    if (call.y.part > kHalf) {
      store_parts<D>(call, acc, y, [](V value) HWY_ATTR { return value; });
    } else if (call.y.part > kHalf / 2) {
      store_parts<hn::Half<D>>(call, acc, y, [](V value) HWY_ATTR { return hn::LowerHalf(value); });
    } else {
      store_parts<hn::Half<hn::Half<D>>>(call, acc, y,
                                         [](V value) HWY_ATTR { return hn::LowerHalf(hn::LowerHalf(value)); });
    }
  }

  /// `narrowed` returns the lanes of DPart.
  template <class DPart, class Narrowed>
  static HWY_INLINE void store_parts(const DepthwiseTileCall& call, const V (&acc)[kOutputs], T* y,
                                     const Narrowed& narrowed) {
    const D d;
    const V least = hn::Set(d, call.y.least);
    const int part = call.y.part;
    HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) {
      store_first_f32_as<kType>(DPart(), narrowed(at_least(d, least, acc[i])), y + i * call.y.step, part);
    }
  }

  struct Parts {
    using D = DepthwiseRowTile::D;
    using T = DepthwiseRowTile::T;
    using Stored = T;
    static HWY_INLINE void tile(const DepthwiseTileCall& call, const T* x, T* y, const float* bias,
                                std::int64_t weights_at) {
      tile_of<true>(call, x, y, bias, weights_at);
    }
  };
  /// Not inlined into run(): tiles of whole vectors took up to 7 % longer beside it.
  static HWY_NOINLINE void run_parts(const DepthwiseTileCall& call) { run_tiles<Parts, kOutputs, kStride>(call); }

  /// The sums of one half of a pair. Positions in the padding are skipped.
  template <Outside kOutside, class Load>
  static HWY_INLINE void sum_half(const DepthwiseTileCall& call, const T* first, const float* weights, V bias,
                                  const Load& load, V (&acc)[kRowTileRows][kOutputs]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    constexpr bool kFirst = kOutside == Outside::first || kOutside == Outside::first_and_last;
    constexpr bool kLast = kOutside == Outside::last || kOutside == Outside::first_and_last;
    HWY_UNROLL(2) for (int row = 0; row < kRowTileRows; ++row) {
      HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) acc[row][i] = bias;
    }
    V taps[kTaps * kTaps];
    HWY_UNROLL(9) for (int tap = 0; tap < kTaps * kTaps; ++tap) taps[tap] = hn::LoadU(d, weights + tap * lanes);
    const Positions inside = call.taps.positions[0];
    HWY_UNROLL(5) for (int input_row = 0; input_row < kInputRows; ++input_row) {
      const T* x = first + input_row * call.x.row;
      HWY_UNROLL(10) for (int i = 0; i < kPositions; ++i) {
        if (!(kFirst && i == 0) && !(kLast && i == kPositions - 1) &&
            (kOutside != Outside::any || HWY_LIKELY((inside >> i & 1) != 0))) {
          const V input = load(x);
          add_products(input, input_row, i, taps, acc);
        }
        x += call.x.step;
        Tile::next_position(x);
      }
    }
  }

  /// Two vectors of lanes, one after the other: the registers hold the weights and accumulators of one.
  template <Outside kOutside>
  static HWY_INLINE void pair_sums(const DepthwiseTileCall& call, const T* x, T* y, const float* bias,
                                   std::int64_t weights_at) {
    const D d;
    const V least = hn::Set(d, call.y.least);
    V even, odd;
    Tile::load_pair_bias(bias, even, odd);
    V acc[kRowTileRows][kOutputs];
    const float* weights = call.weights.first + weights_at;
    sum_half<kOutside>(
        call, x, weights, even, [](const T* at) HWY_ATTR { return Pair::even(at); }, acc);
    hn::Vec<Pair::D32> evens[kRowTileRows][kOutputs];
    HWY_UNROLL(2) for (int row = 0; row < kRowTileRows; ++row) {
      HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) evens[row][i] = Tile::rounded(at_least(d, least, acc[row][i]));
    }
#if defined(__GNUC__)
    asm volatile("" : "+r"(x));  // else gcc keeps what both halves load on the stack
#endif
    sum_half<kOutside>(
        call, x, weights + call.weights.step, odd, [](const T* at) HWY_ATTR { return Pair::odd(at); }, acc);
    HWY_UNROLL(2) for (int row = 0; row < kRowTileRows; ++row) {
      HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) {
        Pair::store(evens[row][i], Tile::rounded(at_least(d, least, acc[row][i])),
                    y + row * call.y.row + i * call.y.step);
      }
    }
  }

  static HWY_INLINE void pair_tile(const DepthwiseTileCall& call, const T* x, T* y, const float* bias,
                                   std::int64_t weights_at) {
    if (HWY_UNLIKELY(call.x.prefetch_bytes != 0)) prefetch(call, x);
    constexpr Positions kLast = Positions{1} << (kPositions - 1), kAll = 2 * kLast - 1;
    const Positions outside = kAll & ~call.taps.positions[0];
    // With stride 1, pixels of one or two pairs would be slower so.
    if constexpr (kStride == 2) {
      if (HWY_LIKELY(outside == 0)) return pair_sums<Outside::none>(call, x, y, bias, weights_at);
      if (outside == 1) return pair_sums<Outside::first>(call, x, y, bias, weights_at);
      if (outside == kLast) return pair_sums<Outside::last>(call, x, y, bias, weights_at);
      if (outside == (kLast | 1)) return pair_sums<Outside::first_and_last>(call, x, y, bias, weights_at);
    }
    pair_sums<Outside::any>(call, x, y, bias, weights_at);
  }
#endif

  static void run(const DepthwiseTileCall& call) {
    if constexpr (kPairs) {
      if (call.vectors.paired) return run_pairs<DepthwiseRowTile, kOutputs, kStride>(call);
    }
#if HWY_TARGET == HWY_AVX3
    if (HWY_UNLIKELY(call.y.part != 0)) return run_parts(call);
#endif
    run_tiles<DepthwiseRowTile, kOutputs, kStride>(call);
  }
};
#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_DEPTHWISE_ROW_TILE_INL_H_
