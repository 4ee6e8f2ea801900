// The register tile of one row of outputs. Registers: up to 8 accumulators (10 with 32 registers), up to 7 weights, 1
// input: the 16 of AVX2. A run of t taps at stride 1 loads t vectors of weights and 7 + t of input for 8t FMA: 13 loads
// for 24 with 3 taps, 17 for 40 with 5, 21 for 56 with 7. So the FMA units bound it, even where each load of input
// crosses a cache line. In bf16, with 32 registers and pixels of whole cache lines, a tile takes two vectors of
// channels from one load of 64 bytes: a shift gives the even channels as f32, a mask the odd ones, and the results are
// merged in the same way. Widening neighbouring channels takes two operations for each vector instead of one, and they
// compete with the FMA.
#if defined(GABLE_CPU_DEPTHWISE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_DEPTHWISE_TILE_INL_H_
#undef GABLE_CPU_DEPTHWISE_TILE_INL_H_
#else
#define GABLE_CPU_DEPTHWISE_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>

#include "cpu/common/fast_copies.h"
#include "cpu/common/vector-inl.h"
#include "cpu/depthwise/depthwise_tile.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

alignas(64) constexpr float kZeroVector[16] = {};  // a vector of any type

/// Whether a run is computed tap after tap: with 32 registers, which hold all its input, if a position has fewer FMA
/// than an FMA takes cycles.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr bool goes_by_taps(int outputs, int taps, int stride) {
  const int registers = outputs + taps + (outputs - 1) * stride + taps;
  return taps > 1 && taps <= 4 * stride && registers <= 32;
}
#else
constexpr bool goes_by_taps(int, int, int) { return false; }
#endif

/// How many accumulators an output has in a tile of one row: tap t adds to accumulator t % sums_of(outputs). With few
/// outputs, a single accumulator would wait for the FMA before it.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int sums_of(int outputs) { return outputs <= 5 ? 2 : 1; }
#else
constexpr int sums_of(int) { return 1; }
#endif

/// Whether tiles of a type take pairs of vectors.
#if HWY_TARGET == HWY_AVX3
constexpr bool takes_pairs(DType type) { return type == DType::bf16; }

/// Two vectors of neighbouring channels of bf16: the even ones and the odd ones of them as f32.
struct Pair {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using D16 = hn::Repartition<std::uint16_t, D>;
  using D32 = hn::RebindToUnsigned<D>;

  static HWY_INLINE V even(const std::uint16_t* x) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::BitCast(D32(), hn::LoadU(D16(), x))));
  }
  static HWY_INLINE V odd(const std::uint16_t* x) {
    return hn::BitCast(D(), hn::And(hn::BitCast(D32(), hn::LoadU(D16(), x)), hn::Set(D32(), 0xffff0000U)));
  }
  /// From sums whose upper halves are the rounded bf16.
  static HWY_INLINE void store(hn::Vec<D32> even, hn::Vec<D32> odd, std::uint16_t* y) {
    const D16 d16;
    hn::StoreU(hn::OddEven(hn::BitCast(d16, odd), hn::BitCast(d16, hn::ShiftRight<16>(even))), d16, y);
  }
};
#else
constexpr bool takes_pairs(DType) { return false; }
#endif

/// The vectors of each tile.
template <class Tile, int kOutputs, int kStride>
HWY_INLINE void run_tiles(const DepthwiseTileCall& caller) {
  using T = typename Tile::T;
  const DepthwiseTileCall call = caller;  // a copy, so that the compiler knows that stores to y do not change it
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(typename Tile::D()));
  const T* x = static_cast<const T*>(call.x.first);
  auto* y = static_cast<typename Tile::Stored*>(call.y.first);
  for (std::int64_t i = 0; i < call.tiles; ++i) {
    for (std::int64_t v = 0; v < call.vectors.count; ++v) {
      const bool last = v + 1 == call.vectors.count;
      Tile::tile(call, x + (last ? call.vectors.last.x : v * lanes), y + (last ? call.vectors.last.y : v * lanes),
                 call.bias.first + (last ? call.vectors.last.bias : v * call.bias.step), v * call.weights.step);
    }
    x += kOutputs * kStride * call.x.step;
    y += kOutputs * call.y.step;
  }
}

/// The pairs of vectors of each tile. Not inlined into the caller of run_tiles(), so that both have all registers.
template <class Tile, int kOutputs, int kStride>
HWY_NOINLINE void run_pairs(const DepthwiseTileCall& caller) {
  using T = typename Tile::T;
  const DepthwiseTileCall call = caller;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(typename Tile::D()));
  const T* x = static_cast<const T*>(call.x.first);
  T* y = static_cast<T*>(call.y.first);
  for (std::int64_t i = 0; i < call.tiles; ++i) {
    for (std::int64_t v = 0; v < call.vectors.count; v += 2) {
      Tile::pair_tile(call, x + v * lanes, y + v * lanes, call.bias.first + v * lanes, v * call.weights.step);
    }
    x += kOutputs * kStride * call.x.step;
    y += kOutputs * call.y.step;
  }
}

/// kShifts: bf16 is widened by two operations instead of one permutation. kStoredType: of y, where x is f32.
template <DType kType, int kOutputs, int kStride, bool kShifts, DType kStoredType = kType>
struct DepthwiseTile {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using T = Storage<kType>;
  using Stored = Storage<kStoredType>;
  static constexpr bool kPairs = takes_pairs(kType);
  static constexpr int kSums = sums_of(kOutputs);

  /// The sums of a tile's outputs; tap t adds to sum t % kSums.
  struct Sums {
    V of[kSums][kOutputs];
  };

  /// See vector-inl.h: gcc would keep an offset for each position.
  static HWY_INLINE void next_position([[maybe_unused]] const T*& x) {
#if defined(__GNUC__)
    asm("" : "+r"(x));
#endif
  }

  static HWY_INLINE V widened(const T* x) {
    const D d;
#if HWY_TARGET == HWY_AVX3
    if constexpr (kType == DType::bf16 && !kShifts) {
      // One permutation puts each element into the upper half of a lane; widening and shifting are two operations.
      alignas(64) static constexpr std::uint16_t kSources[32] = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                                                                 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
      return V{_mm512_castsi512_ps(
          _mm512_maskz_permutexvar_epi16(0xaaaaaaaaU, _mm512_load_si512(kSources), _mm512_castsi256_si512(half)))};
    }
#endif
    return load_as_f32<kType>(d, x);
  }

  /// A position outside the image reads zeros.
  template <bool kAll>
  static HWY_INLINE V load(const T* x, Positions inside, int position) {
    if constexpr (kAll) return widened(x);
    const T* zeros = reinterpret_cast<const T*>(kZeroVector);
    return widened(HWY_LIKELY((inside >> position & 1) != 0) ? x : zeros);
  }

  /// Outputs [kFirst, kFirst + kCount), tap after tap. An accumulator is used again after kCount FMA, which is about
  /// the latency of one.
  template <int kTaps, bool kAll, int kFirst, int kCount>
  static HWY_INLINE void by_taps(const T* x, std::int64_t step, const V (&taps)[kTaps], Positions inside, Sums& sums) {
    constexpr int kPositions = (kCount - 1) * kStride + kTaps;
    V inputs[kPositions];
    HWY_UNROLL(21) for (int i = 0; i < kPositions; ++i) {
      inputs[i] = load<kAll>(x, inside, kFirst * kStride + i);
      x += step;
      next_position(x);
    }
    HWY_UNROLL(7) for (int tap = 0; tap < kTaps; ++tap) {
      HWY_UNROLL(8) for (int i = 0; i < kCount; ++i) {
        V& sum = sums.of[tap % kSums][kFirst + i];
        sum = hn::MulAdd(inputs[i * kStride + tap], taps[tap], sum);
      }
    }
  }

  /// All outputs, position after position. An accumulator is used again at the next position, so this is for runs of
  /// many taps, which have as many FMA for each position.
  template <int kTaps, bool kAll>
  static HWY_INLINE void by_positions(const T* x, std::int64_t step, const V (&taps)[kTaps], Positions inside,
                                      Sums& sums) {
    constexpr int kPositions = (kOutputs - 1) * kStride + kTaps;
    HWY_UNROLL(21) for (int i = 0; i < kPositions; ++i) {
      if (kAll || HWY_LIKELY((inside >> i & 1) != 0)) {
        const V input = widened(x);
        HWY_UNROLL(8) for (int output = 0; output < kOutputs; ++output) {
          const int tap = i - output * kStride;
          if (tap < 0 || tap >= kTaps) continue;
          V& sum = sums.of[tap % kSums][output];
          sum = hn::MulAdd(input, taps[tap], sum);
        }
      }
      x += step;
      next_position(x);
    }
  }

  /// kAll: every position is inside the image.
  template <int kTaps, bool kAll>
  static HWY_INLINE void multiply_add(const T* x, std::int64_t step, const float* weights, Positions inside,
                                      Sums& sums) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    V taps[kTaps];
    HWY_UNROLL(7) for (int tap = 0; tap < kTaps; ++tap) taps[tap] = hn::LoadU(d, weights + tap * lanes);
    constexpr int kGroup = (kOutputs + 1) / 2;
    if constexpr (goes_by_taps(kOutputs, kTaps, kStride)) {
      by_taps<kTaps, kAll, 0, kOutputs>(x, step, taps, inside, sums);
    } else if constexpr (goes_by_taps(kGroup, kTaps, kStride)) {
      by_taps<kTaps, kAll, 0, kGroup>(x, step, taps, inside, sums);
      by_taps<kTaps, kAll, kGroup, kOutputs - kGroup>(x + kGroup * kStride * step, step, taps, inside, sums);
    } else {
      by_positions<kTaps, kAll>(x, step, taps, inside, sums);
    }
  }

  template <int kTaps>
  static HWY_INLINE void run_of(const T* x, std::int64_t step, const float* weights, Positions inside, Sums& sums) {
    constexpr Positions kAll = (Positions{1} << ((kOutputs - 1) * kStride + kTaps)) - 1;
    if (kFastCopies && inside == kAll) {
      multiply_add<kTaps, true>(x, step, weights, inside, sums);
    } else {
      multiply_add<kTaps, false>(x, step, weights, inside, sums);
    }
  }

  static HWY_INLINE void all_runs(const DepthwiseTileCall& call, const T* first, std::int64_t weights_at, Sums& sums) {
    for (const TapRun* run = call.taps.runs; run != call.taps.runs + call.taps.run_count; ++run) {
      const T* x = first + run->x;
      const float* weights = call.weights.first + run->weights + weights_at;
      const Positions inside = call.taps.positions[run->positions];
      switch (run->taps) {
        case 1:
          run_of<1>(x, call.x.step, weights, inside, sums);
          break;
        case 2:
          run_of<2>(x, call.x.step, weights, inside, sums);
          break;
        case 3:
          run_of<3>(x, call.x.step, weights, inside, sums);
          break;
        case 5:
          run_of<5>(x, call.x.step, weights, inside, sums);
          break;
        default:
          run_of<7>(x, call.x.step, weights, inside, sums);
          break;
      }
    }
  }

  /// Converts to bf16 without treating NaNs whose lower half is not zero: sums of bf16 products never give such NaNs,
  /// and quiet() removes them from the bias.
  static HWY_INLINE auto rounded(V value) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  }
  static HWY_INLINE void store(V value, Stored* y) {
    const D d;
    if constexpr (kStoredType == DType::bf16) {
      const auto half = hn::BitCast(hn::RebindToSigned<D>(), hn::ShiftRight<16>(rounded(value)));
      hn::StoreU(hn::DemoteTo(HalfTag<D>(), half), HalfTag<D>(), y);
    } else {
      store_f32_as<kStoredType>(d, value, y);
    }
  }
  /// Two outputs share the operations that gather the upper halves of their lanes.
  static HWY_INLINE void store_all(const V (&acc)[kOutputs], Stored* y, std::int64_t step) {
    int i = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kStoredType == DType::bf16 && kOutputs > 1) {
      const hn::Repartition<std::uint16_t, D> d16;
      HWY_UNROLL(4) for (; i + 1 < kOutputs; i += 2) {
        const auto both = hn::ConcatOdd(d16, hn::BitCast(d16, rounded(acc[i + 1])), hn::BitCast(d16, rounded(acc[i])));
        hn::StoreU(hn::LowerHalf(both), HalfTag<D>(), y + i * step);
        hn::StoreU(hn::UpperHalf(HalfTag<D>(), both), HalfTag<D>(), y + (i + 1) * step);
      }
    }
#endif
    HWY_UNROLL(8) for (; i < kOutputs; ++i) store(acc[i], y + i * step);
  }
  static HWY_INLINE V quiet(V bias) {
    const D d;
    if constexpr (kStoredType != DType::bf16) return bias;
    return hn::IfThenElse(hn::IsNaN(bias), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), bias);
  }

  /// Activation and stores of a row.
  static HWY_INLINE void finish(const DepthwiseTileCall& call, V (&acc)[kOutputs], Stored* y) {
    const D d;
    const V least = hn::Set(d, call.y.least);
    HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) acc[i] = at_least(d, least, acc[i]);
    if constexpr (kStoredType == DType::f32) {
      if (call.y.non_temporal) {
        HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) hn::Stream(acc[i], d, y + i * call.y.step);
        return;
      }
    }
    store_all(acc, y, call.y.step);
  }

  /// Prefetches the lines that the next row of tiles will read and this one does not.
  static HWY_INLINE void prefetch(const DepthwiseTileCall& call, const T* x) {
    const char* line =
        reinterpret_cast<const char*>(x + call.taps.runs[call.taps.run_count - 1].x) + call.x.prefetch_bytes;
    const std::int64_t step = call.x.step * static_cast<std::int64_t>(sizeof(T));
    HWY_UNROLL(16) for (int i = 0; i < kOutputs * kStride; ++i) {
      __builtin_prefetch(line, 0, 2);
      line += step;
    }
  }

  /// One vector of lanes.
  static HWY_INLINE void tile(const DepthwiseTileCall& call, const T* x, Stored* y, const float* bias,
                              std::int64_t weights_at) {
    const D d;
    if (HWY_UNLIKELY(call.x.prefetch_bytes != 0)) prefetch(call, x);
    const V first = quiet(hn::LoadU(d, bias));
    Sums sums;
    HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) {
      sums.of[0][i] = first;
      if constexpr (kSums == 2) sums.of[1][i] = hn::Set(d, -0.0F);  // adds nothing, not even a sign
    }
    all_runs(call, x, weights_at, sums);
    if constexpr (kSums == 2) {
      HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) sums.of[0][i] = hn::Add(sums.of[0][i], sums.of[1][i]);
    }
    finish(call, sums.of[0], y);
  }

#if HWY_TARGET == HWY_AVX3
  /// Whether a run's weights for both halves of a pair fit the registers beside both halves' accumulators.
  static constexpr bool pair_fits(int taps) { return 2 * (kOutputs + taps) + 3 <= 32; }

  /// A run for both halves of a pair. An accumulator is used again at the next position; the products of both halves in
  /// between take about the latency of an FMA.
  template <int kTaps, bool kAll>
  static HWY_INLINE void multiply_add_pair(const DepthwiseTileCall& call, const T* x, const float* weights,
                                           Positions inside, V (&even)[kOutputs], V (&odd)[kOutputs]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    constexpr int kPositions = (kOutputs - 1) * kStride + kTaps;
    V even_taps[kTaps], odd_taps[kTaps];
    HWY_UNROLL(7) for (int tap = 0; tap < kTaps; ++tap) {
      even_taps[tap] = hn::LoadU(d, weights + tap * lanes);
      odd_taps[tap] = hn::LoadU(d, weights + call.weights.step + tap * lanes);
    }
    HWY_UNROLL(21) for (int i = 0; i < kPositions; ++i) {
      if (kAll || HWY_LIKELY((inside >> i & 1) != 0)) {
        const V even_input = Pair::even(x), odd_input = Pair::odd(x);
        HWY_UNROLL(8) for (int output = 0; output < kOutputs; ++output) {
          const int tap = i - output * kStride;
          if (tap >= 0 && tap < kTaps) {
            even[output] = hn::MulAdd(even_input, even_taps[tap], even[output]);
            odd[output] = hn::MulAdd(odd_input, odd_taps[tap], odd[output]);
          }
        }
      }
      x += call.x.step;
      next_position(x);
    }
  }

  /// A run for one half of a pair.
  template <int kTaps, class Load>
  static HWY_INLINE void multiply_add_half(const DepthwiseTileCall& call, const T* x, const float* weights,
                                           Positions inside, const Load& load, V (&acc)[kOutputs]) {
    const D d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    constexpr int kPositions = (kOutputs - 1) * kStride + kTaps;
    V taps[kTaps];
    HWY_UNROLL(7) for (int tap = 0; tap < kTaps; ++tap) taps[tap] = hn::LoadU(d, weights + tap * lanes);
    HWY_UNROLL(21) for (int i = 0; i < kPositions; ++i) {
      if (HWY_LIKELY((inside >> i & 1) != 0)) {
        const V input = load(x);
        HWY_UNROLL(8) for (int output = 0; output < kOutputs; ++output) {
          const int tap = i - output * kStride;
          if (tap >= 0 && tap < kTaps) acc[output] = hn::MulAdd(input, taps[tap], acc[output]);
        }
      }
      x += call.x.step;
      next_position(x);
    }
  }

  template <int kTaps>
  static HWY_INLINE void run_of_pair(const DepthwiseTileCall& call, const T* x, const float* weights, Positions inside,
                                     V (&even)[kOutputs], V (&odd)[kOutputs]) {
    constexpr Positions kAll = (Positions{1} << ((kOutputs - 1) * kStride + kTaps)) - 1;
    if constexpr (!pair_fits(kTaps)) {
      multiply_add_half<kTaps>(
          call, x, weights, inside, [](const T* at) HWY_ATTR { return Pair::even(at); }, even);
      weights += call.weights.step;
      multiply_add_half<kTaps>(
          call, x, weights, inside, [](const T* at) HWY_ATTR { return Pair::odd(at); }, odd);
    } else if (kFastCopies && inside == kAll) {
      multiply_add_pair<kTaps, true>(call, x, weights, inside, even, odd);
    } else {
      multiply_add_pair<kTaps, false>(call, x, weights, inside, even, odd);
    }
  }

  /// Two vectors of lanes.
  static HWY_INLINE void pair_tile(const DepthwiseTileCall& call, const T* x, T* y, const float* bias,
                                   std::int64_t weights_at) {
    const D d;
    if (HWY_UNLIKELY(call.x.prefetch_bytes != 0)) prefetch(call, x);
    V first_even, first_odd;
    load_pair_bias(bias, first_even, first_odd);
    V even[kOutputs], odd[kOutputs];
    HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) {
      even[i] = first_even;
      odd[i] = first_odd;
    }
    for (const TapRun* run = call.taps.runs; run != call.taps.runs + call.taps.run_count; ++run) {
      const float* weights = call.weights.first + run->weights + weights_at;
      const Positions inside = call.taps.positions[run->positions];
      switch (run->taps) {
        case 1:
          run_of_pair<1>(call, x + run->x, weights, inside, even, odd);
          break;
        case 2:
          run_of_pair<2>(call, x + run->x, weights, inside, even, odd);
          break;
        case 3:
          run_of_pair<3>(call, x + run->x, weights, inside, even, odd);
          break;
        case 5:
          run_of_pair<5>(call, x + run->x, weights, inside, even, odd);
          break;
        default:
          run_of_pair<7>(call, x + run->x, weights, inside, even, odd);
          break;
      }
    }
    const V least = hn::Set(d, call.y.least);
    HWY_UNROLL(8) for (int i = 0; i < kOutputs; ++i) {
      Pair::store(rounded(at_least(d, least, even[i])), rounded(at_least(d, least, odd[i])), y + i * call.y.step);
    }
  }

  static HWY_INLINE void load_pair_bias(const float* bias, V& even, V& odd) {
    const D d;
    const V low = quiet(hn::LoadU(d, bias)), high = quiet(hn::LoadU(d, bias + hn::Lanes(d)));
    even = hn::ConcatEven(d, high, low);
    odd = hn::ConcatOdd(d, high, low);
  }
#endif

  static void run(const DepthwiseTileCall& call) {
    if constexpr (kPairs) {
      if (call.vectors.paired) return run_pairs<DepthwiseTile, kOutputs, kStride>(call);
    }
    run_tiles<DepthwiseTile, kOutputs, kStride>(call);
  }
};

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_DEPTHWISE_TILE_INL_H_
