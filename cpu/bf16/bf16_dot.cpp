// AVX512-BF16's pair product: 32 multiply-adds in an instruction. The tile's halves are computed one after the other.
// A half: 14 positions x 2 vectors of 16 lanes = 28 accumulators in registers, 2 registers of weights, 1 broadcast pair
// of channels. A step of two channels is 28 products, 2 loads of weights (L1/L2) and 14 of input (L1). A panel of at
// most 16 lanes multiplies one vector; where no panel has more, a half takes up to 28 positions. Short rows of outputs
// are runs of one half: their products share the weights, and there are enough of them to hide the products' latency.
#include <array>
#include <cstring>
#include <utility>

#include "cpu/bf16/epilogue_x86-inl.h"
#include "cpu/bf16/unit.h"
#include "cpu/common/core.h"
#include "cpu/common/cpuid.h"

namespace gable::cpu {

#if defined(__x86_64__)
namespace bf16 {
namespace {

constexpr int kDotPositions = 14;
constexpr int kDotNarrowPositions = 28;  // of one vector

/// A pair of channels.
inline int pair_at(const std::uint16_t* a) {
  int channels;
  std::memcpy(&channels, a, sizeof channels);
  return channels;
}

/// A vector of 16 lanes.
struct Sixteen {
  static constexpr bool kPrefetches = true;
  using Sums = __m512;
  GABLE_CPU_BF16 static Sums zero() { return _mm512_setzero_ps(); }
  GABLE_CPU_BF16 static Sums load(const float* sums) { return _mm512_loadu_ps(sums); }
  GABLE_CPU_BF16 static void store(float* to, Sums sums) { _mm512_storeu_ps(to, sums); }
  GABLE_CPU_BF16 static __m512i weights(const std::uint16_t* from) { return _mm512_loadu_si512(from); }
  GABLE_CPU_BF16 static Sums dot(Sums sums, int pair, __m512i weights) {
    return dot(sums, _mm512_set1_epi32(pair), weights);
  }
  GABLE_CPU_BF16 static Sums dot(Sums sums, __m512i pairs, __m512i weights) {
    return _mm512_dpbf16_ps(sums, (__m512bh)pairs, (__m512bh)weights);
  }
  GABLE_CPU_BF16 static Sums add(Sums a, Sums b) { return _mm512_add_ps(a, b); }
  GABLE_CPU_BF16 static __m512 widened(Sums sums) { return sums; }
};
/// A vector of 8 lanes, for panels of no more: a CPU multiplies two of them in the time of one with 16.
struct Eight {
  static constexpr bool kPrefetches = false;  // few weights, which L1 keeps; loads are what limits it
  using Sums = __m256;
  GABLE_CPU_BF16 static Sums zero() { return _mm256_setzero_ps(); }
  GABLE_CPU_BF16 static Sums load(const float* sums) { return _mm256_loadu_ps(sums); }
  GABLE_CPU_BF16 static void store(float* to, Sums sums) { _mm256_storeu_ps(to, sums); }
  GABLE_CPU_BF16 static __m256i weights(const std::uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  GABLE_CPU_BF16 static Sums dot(Sums sums, int pair, __m256i weights) {
    return dot(sums, _mm256_set1_epi32(pair), weights);
  }
  GABLE_CPU_BF16 static Sums dot(Sums sums, __m256i pairs, __m256i weights) {
    return _mm256_dpbf16_ps(sums, (__m256bh)pairs, (__m256bh)weights);
  }
  GABLE_CPU_BF16 static Sums add(Sums a, Sums b) { return _mm256_add_ps(a, b); }
  GABLE_CPU_BF16 static __m512 widened(Sums sums) {
    return _mm512_castpd_ps(_mm512_maskz_insertf64x4(0xff, _mm512_setzero_pd(), _mm256_castps_pd(sums), 0));
  }
};

/// A pair of channels in all lanes, or zero, which reads no memory: the instruction's own mask sees to that.
template <class Lanes>
GABLE_CPU_BF16 inline __attribute__((always_inline)) auto masked_pair(const std::uint16_t* a, __mmask16 mask) {
  decltype(Lanes::weights(a)) pairs;
  asm("vpbroadcastd %1, %0%{%2%}%{z%}" : "=v"(pairs) : "m"(*reinterpret_cast<const int*>(a)), "Yk"(mask));
  return pairs;
}

/// Products of one pair of channels; kSingle: of its first one.
template <class Lanes, int kPositions, int kVectors, bool kSingle>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void dot_pair(typename Lanes::Sums (&acc)[kPositions][kVectors],
                                                                   const std::uint16_t* a, std::int64_t stride,
                                                                   const std::uint16_t* weights) {
  decltype(Lanes::weights(weights)) w[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) w[v] = Lanes::weights(weights + v * (kWeightBlock / 2));
#pragma GCC unroll 28
  for (int i = 0; i < kPositions; ++i) {
    // A single channel's neighbour may be NaN in memory or lie past the image's end.
    const int x = kSingle ? a[i * stride] : pair_at(a + i * stride);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[i][v] = Lanes::dot(acc[i][v], x, w[v]);
  }
}

/// Prefetch distance of weights. Two blocks cover L2's latency; L2's hardware prefetcher restarts at each block.
constexpr std::int64_t kNearWeights = 2 * kWeightBlock;
/// Blocks of the weights of one vector, 1 KiB each, that stay in L1 beside a tile's input.
constexpr std::int64_t kBlocksInL1 = 16;
/// The prefetch distance if only one position reads the weights.
constexpr std::int64_t kStreamAhead = 2 * kWeightBlock;

/// One position times the weights of one block and tap, which are read in memory order: a vector times a matrix waits
/// for its weights, and hardware prefetchers follow one stream further ahead than two. Several sums for each vector
/// hide the product's latency. `prefetches`: in software too, which delays those of a Zen 4.
template <class Lanes, int kVectors>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void dot_one(typename Lanes::Sums (&acc)[1][kVectors],
                                                                  const std::uint16_t* a, int pairs,
                                                                  const std::uint16_t* weights, bool prefetches) {
  constexpr int kSums = 4;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v, weights += kWeightBlock / 2) {
    typename Lanes::Sums sums[kSums] = {acc[0][v], Lanes::zero(), Lanes::zero(), Lanes::zero()};
    int pair = 0;
    for (; pair + kSums <= pairs; pair += kSums) {
      if (prefetches) {
        __builtin_prefetch(weights + pair * kLanes + kStreamAhead);
        __builtin_prefetch(weights + pair * kLanes + kStreamAhead + kLanes);
        __builtin_prefetch(weights + pair * kLanes + kStreamAhead + 2 * kLanes);
        __builtin_prefetch(weights + pair * kLanes + kStreamAhead + 3 * kLanes);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kSums; ++i) {
        sums[i] = Lanes::dot(sums[i], pair_at(a + 2 * (pair + i)), Lanes::weights(weights + (pair + i) * kLanes));
      }
    }
    for (; pair < pairs; ++pair) {
      sums[0] = Lanes::dot(sums[0], pair_at(a + 2 * pair), Lanes::weights(weights + pair * kLanes));
    }
    acc[0][v] = Lanes::add(Lanes::add(sums[0], sums[1]), Lanes::add(sums[2], sums[3]));
  }
}

/// Addresses of a half's positions, kRuns runs of as many: seven positions of a run share a base address and are
/// reached by odd multiples of their distance. Otherwise gcc keeps a register for each of the 14 positions and reloads
/// the ones that it spills; with one vector of lanes, loads are the limit.
template <int kPositions, int kRuns>
struct PositionAddresses {
  static constexpr int kOfBase = 7;
  static constexpr int kOfRun = kPositions / kRuns;
  static constexpr int kBasesOfRun = (kOfRun + kOfBase - 1) / kOfBase;
  static constexpr int kBases = kRuns * kBasesOfRun;

  const char* base[kBases];
  std::int64_t one, three, five;  // bytes

  GABLE_CPU_BF16 inline __attribute__((always_inline))
  PositionAddresses(const std::uint16_t* first, std::int64_t distance, std::int64_t run)
      : one(distance * static_cast<std::int64_t>(sizeof(*first))), three(3 * one), five(5 * one) {
    for (int b = 0; b < kBases; ++b) {
      const std::int64_t offset = b / kBasesOfRun * run + b % kBasesOfRun * kOfBase * distance;
      base[b] = reinterpret_cast<const char*>(first + offset);
    }
  }
  /// Call it before each use: gcc would keep the scaled multiples too.
  GABLE_CPU_BF16 inline __attribute__((always_inline)) void hide() { asm("" : "+r"(one), "+r"(three), "+r"(five)); }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) const std::uint16_t* at(int position) const {
    const int b = position / kOfRun * kBasesOfRun + position % kOfRun / kOfBase, p = position % kOfRun % kOfBase;
    const std::int64_t offset = p == 3 ? three : p == 5 ? five : p == 6 ? three * 2 : one * p;
    return reinterpret_cast<const std::uint16_t*>(base[b] + offset);
  }
  GABLE_CPU_BF16 inline __attribute__((always_inline)) void advance(std::int64_t elements) {
    for (int b = 0; b < kBases; ++b) {
      const char* next = base[b] + elements * static_cast<std::int64_t>(sizeof(std::uint16_t));
      asm("" : "+r"(next));
      base[b] = next;
    }
  }
};

/// Which columns of a half read only the image: all, or all but the ones that have masks: the outermost positions of
/// each run, two on each side, or runs. A masked pair is a load of its own.
enum class Border { none, outermost, positions, runs };

/// The mask of a position; -1: none.
template <int kPositions, int kRuns, Border kBorder>
constexpr int mask_of(int i) {
  constexpr int kOfRun = kPositions / kRuns, kSide = kBorderColumns / 2;
  if constexpr (kBorder == Border::none) return -1;
  if constexpr (kBorder == Border::runs) return i / kOfRun;
  const int column = i % kOfRun;
  if (kBorder == Border::outermost && column > 0 && column < kOfRun - 1) return -1;
  if (column < kSide || kOfRun <= kBorderColumns) return column;
  return column >= kOfRun - kSide ? column - kOfRun + kBorderColumns : -1;
}

/// The input of a half's products: `pairs` pairs of channels of positions `distance` elements apart, and of runs that
/// lie `run` apart; `single`: and one more channel.
struct PairInput {
  const std::uint16_t* a;
  std::int64_t distance, run;
  int pairs;
  bool single;
  const BorderMasks* border;
};

/// Products of all pairs by way of base addresses.
template <class Lanes, int kPositions, int kVectors, int kRuns, bool kSingle, Border kBorder>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void dot_pairs(typename Lanes::Sums (&acc)[kPositions][kVectors],
                                                                    const PairInput& in, bool prefetches,
                                                                    std::int64_t ahead, const std::uint16_t* weights) {
  __mmask16 masks[kBorderColumns] = {};
  if constexpr (kBorder != Border::none) {
#pragma GCC unroll 4
    for (int m = 0; m < kBorderColumns; ++m) masks[m] = in.border->column[m];
  }
  PositionAddresses<kPositions, kRuns> x(in.a, in.distance, in.run);
  decltype(Lanes::weights(weights)) w[kVectors];
  for (int pair = 0; pair < in.pairs; ++pair, weights += kLanes) {
    if (prefetches) {
      __builtin_prefetch(weights + kNearWeights);
      if constexpr (kVectors > 1) __builtin_prefetch(weights + ahead);
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) w[v] = Lanes::weights(weights + v * (kWeightBlock / 2));
    x.hide();
#pragma GCC unroll 28
    for (int i = 0; i < kPositions; ++i) {
      const int m = mask_of<kPositions, kRuns, kBorder>(i);
      if (m >= 0) {
        const auto channels = masked_pair<Lanes>(x.at(i), masks[m]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[i][v] = Lanes::dot(acc[i][v], channels, w[v]);
      } else {
        const int channels = pair_at(x.at(i));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[i][v] = Lanes::dot(acc[i][v], channels, w[v]);
      }
    }
    x.advance(2);
  }
  if constexpr (kSingle) {
    if (!in.single) return;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) w[v] = Lanes::weights(weights + v * (kWeightBlock / 2));
    x.hide();
#pragma GCC unroll 28
    for (int i = 0; i < kPositions; ++i) {
      const int m = mask_of<kPositions, kRuns, kBorder>(i);
      const int channel = m < 0 || masks[m] != 0 ? *x.at(i) : 0;
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] = Lanes::dot(acc[i][v], channel, w[v]);
    }
  }
}

/// Adds all products of one half to `acc`. `ahead`: of a second line of weights to prefetch.
template <class Lanes, int kPositions, int kVectors, int kStride, bool kSingle, int kRuns, Border kBorder>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void add_products(
    typename Lanes::Sums (&acc)[kPositions][kVectors], const Tile& tile, const std::uint16_t* input,
    const TapRange& taps, std::int64_t ahead) {
  const Operands& in = tile.operands;
  const std::int64_t stride = kStride == 0 ? in.position : kStride;
  const std::int64_t first_tap = taps.begin, end_tap = taps.end;
  const std::int64_t blocks = tile.blocks.count;
  const int last_pairs = tile.blocks.last_pairs;
  // L1 keeps a few blocks of one vector's weights. Loads are what limits such a tile, and prefetches are loads.
  const bool prefetches = Lanes::kPrefetches && (kVectors > 1 || blocks * tile.taps.count > kBlocksInL1);
  [[maybe_unused]] const bool streams_prefetch = kPositions == 1 && !splits_512_bits();
  for (std::int64_t block = 0; block < blocks; ++block) {
    const bool single = kSingle && tile.blocks.last_is_single && block + 1 == blocks;
    std::int64_t column = 0;
    const int pairs = (block + 1 == blocks ? last_pairs : kChannels / 2) - (single ? 1 : 0);
    const std::uint16_t* b = in.b + (block * tile.taps.count + first_tap) * kWeightBlock;
    for (std::int64_t tap = first_tap; tap < end_tap; ++tap, b += kWeightBlock) {
      const std::uint16_t* a = input + block * in.a_block + in.tap_offsets[tap];
      const std::uint16_t* weights = b;
      if constexpr (kPositions == 1 && !kSingle) {
        dot_one<Lanes, kVectors>(acc, a, pairs, weights, streams_prefetch);
        continue;
      }
      if constexpr (kRuns > 1 || kBorder != Border::none || kStride == 0) {
        const PairInput of_tap{a, stride, tile.runs.input, pairs, single, tile.taps.border + column};
        if (kBorder != Border::none && ++column == tile.taps.border_columns) column = 0;
        dot_pairs<Lanes, kPositions, kVectors, kRuns, kSingle, kBorder>(acc, of_tap, prefetches, ahead, weights);
        continue;
      }
      for (int pair = 0; pair < pairs; ++pair, a += 2, weights += kLanes) {
        if (prefetches) {
          __builtin_prefetch(weights + kNearWeights);
          __builtin_prefetch(weights + ahead);
        }
        dot_pair<Lanes, kPositions, kVectors, false>(acc, a, stride, weights);
      }
      if (single) dot_pair<Lanes, kPositions, kVectors, true>(acc, a, stride, weights);
    }
  }
}

/// One half of exactly kPositions positions x kVectors vectors of lanes, and its repeats. kStride is the elements
/// between positions, 0: known at run time only. kSingle: the last block may end with half a pair. kRuns: the positions
/// are so many runs.
template <class Lanes, int kPositions, int kVectors, int kStride, bool kSingle, int kRuns = 1,
          Border kBorder = Border::none>
GABLE_CPU_BF16 void dot_half(const Tile& tile, std::size_t half) {
  constexpr int kOfRun = kPositions / kRuns;
  const std::int64_t position_sums = kStride == 0 ? tile.runs.position_sums : kLanes;
  const auto sums_at = [&](int i) { return i / kOfRun * tile.runs.sums + i % kOfRun * position_sums; };
  const std::uint16_t* input = tile.operands.a[half];
  float* sums = tile.accumulators + static_cast<std::int64_t>(half) * kHalfFloats;
  std::int64_t y_offset = 0;
  for (std::int64_t repeat = 0; repeat < tile.repeats; ++repeat) {
    typename Lanes::Sums acc[kPositions][kVectors];
    if (tile.adds) {
#pragma GCC unroll 28
      for (int i = 0; i < kPositions; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[i][v] = Lanes::load(sums + sums_at(i) + v * kVector);
      }
    } else {
#pragma GCC unroll 28
      for (int i = 0; i < kPositions; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[i][v] = Lanes::zero();
      }
    }
    const std::int64_t half_index = tile.first_half + repeat;
    const bool prefetches = tile.next_weights > 0 && half_index < 2;
    const std::int64_t ahead =
        prefetches ? tile.next_weights + half_index * (kWeightBlock / 2) : kNearWeights + kWeightBlock / 2;
    TapRange taps = tile.taps.of_half[half];
    const std::int64_t end_tap = taps.end;
    if (tile.taps.run > 0) taps.end = taps.begin + tile.taps.run;
    while (taps.begin < end_tap) {
      add_products<Lanes, kPositions, kVectors, kStride, kSingle, kRuns, kBorder>(acc, tile, input, taps, ahead);
      if (taps.end >= end_tap) break;
      taps = {taps.begin + tile.taps.pitch, taps.end + tile.taps.pitch};
    }
    if (tile.register_epilogue != nullptr) {
      const Epilogue& epilogue = *tile.register_epilogue;
      const EpilogueVectors<DType::bf16> vectors(epilogue);
      std::uint16_t* y = static_cast<std::uint16_t*>(epilogue.y) + y_offset;
#pragma GCC unroll 28
      for (int i = 0; i < kPositions; ++i, y += epilogue.y_pixel) {
        if (i > 0 && i % kOfRun == 0) y += tile.runs.y - kOfRun * epilogue.y_pixel;
        if constexpr (kVectors == 1) {
          vectors.store_low(Lanes::widened(acc[i][0]), y);
        } else {
          vectors.store(Lanes::widened(acc[i][0]), Lanes::widened(acc[i][1]), y);
        }
      }
      y_offset += tile.repeat_y;
    } else {
#pragma GCC unroll 28
      for (int i = 0; i < kPositions; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) Lanes::store(sums + sums_at(i) + v * kVector, acc[i][v]);
      }
    }
    input += tile.repeat_input;
    sums += tile.half_floats;
  }
}

using DotFunction = void (*)(const Tile&, std::size_t half);
template <int kVectors, int kStride, bool kSingle, class Lanes = Sixteen, int... kPositions>
constexpr std::array<DotFunction, sizeof...(kPositions)> dot_table(std::integer_sequence<int, kPositions...>) {
  return {&dot_half<Lanes, kPositions + 1, kVectors, kStride, kSingle>...};
}
constexpr auto kCounts = std::make_integer_sequence<int, kDotPositions>();
constexpr auto kNarrowCounts = std::make_integer_sequence<int, kDotNarrowPositions>();
constexpr auto kDotDense = dot_table<2, kChannels, false>(kCounts);
constexpr auto kDotStrided = dot_table<2, 0, false>(kCounts);
constexpr auto kDotSingle = dot_table<2, 0, true>(kCounts);
/// Tables for folded images of three channels with stride 1 and 2.
constexpr auto kDotThree = dot_table<2, 3, true>(kCounts);
constexpr auto kDotSix = dot_table<2, 6, true>(kCounts);
/// Staged groups of as many channels as a vector has lanes.
constexpr auto kDotVectorDense = dot_table<1, kVector, false>(kNarrowCounts);
constexpr auto kDotVector = dot_table<1, 0, false>(kNarrowCounts);
constexpr auto kDotVectorSingle = dot_table<1, 0, true>(kNarrowCounts);
constexpr auto kDotEightDense = dot_table<1, kVector / 2, false, Eight>(kNarrowCounts);
constexpr auto kDotEightSixteen = dot_table<1, kVector, false, Eight>(kNarrowCounts);
constexpr auto kDotEight = dot_table<1, 0, false, Eight>(kNarrowCounts);

/// Halves at the border of an image, and halves of several runs, of at least as many positions as there are runs, with
/// at most kMostBases base addresses.
constexpr int kMostRuns = 4, kMostBases = 4;
constexpr int bases_of_run(int positions) { return (positions + 6) / 7; }
constexpr bool fits_runs(int runs, int positions, int vectors) {
  return runs * positions <= (vectors == 1 ? kDotNarrowPositions : kDotPositions) && positions >= runs &&
         runs * bases_of_run(positions) <= kMostBases;
}
template <class Lanes, int kRuns, int kOfRun, int kVectors, Border kBorder>
constexpr DotFunction runs_function() {
  constexpr bool one = kRuns == 1 && kBorder != Border::none && kBorder != Border::runs &&
                       kOfRun <= (kVectors == 1 ? kDotNarrowPositions : kDotPositions);
  constexpr bool several =
      kRuns > 1 && fits_runs(kRuns, kOfRun, kVectors) && (kBorder != Border::runs || kOfRun > kRuns);
  if constexpr (one || several) return &dot_half<Lanes, kRuns * kOfRun, kVectors, 0, true, kRuns, kBorder>;
  return nullptr;
}
using RunsTable = std::array<std::array<DotFunction, kDotNarrowPositions>, kMostRuns>;
template <class Lanes, int kVectors, Border kBorder, int... kPositions>
constexpr RunsTable runs_table(std::integer_sequence<int, kPositions...>) {
  return {{{runs_function<Lanes, 1, kPositions + 1, kVectors, kBorder>()...},
           {runs_function<Lanes, 2, kPositions + 1, kVectors, kBorder>()...},
           {runs_function<Lanes, 3, kPositions + 1, kVectors, kBorder>()...},
           {runs_function<Lanes, 4, kPositions + 1, kVectors, kBorder>()...}}};
}
/// The same for each Border.
struct RunsTables {
  RunsTable none, outermost, positions, runs;
};
template <class Lanes, int kVectors>
constexpr RunsTables runs_tables() {
  return {runs_table<Lanes, kVectors, Border::none>(kNarrowCounts),
          runs_table<Lanes, kVectors, Border::outermost>(kNarrowCounts),
          runs_table<Lanes, kVectors, Border::positions>(kNarrowCounts),
          runs_table<Lanes, kVectors, Border::runs>(kNarrowCounts)};
}
constexpr RunsTables kDotRuns = runs_tables<Sixteen, 2>();
constexpr RunsTables kDotVectorRuns = runs_tables<Sixteen, 1>();
constexpr RunsTables kDotEightRuns = runs_tables<Eight, 1>();

DotFunction runs_function_of(const Tile& tile) {
  const auto runs = static_cast<std::size_t>(tile.runs.count);
  const RunsTables& tables = tile.vectors == 2 ? kDotRuns : tile.is_half_a_vector ? kDotEightRuns : kDotVectorRuns;
  const RunsTable& table = tile.taps.border == nullptr         ? tables.none
                           : tile.runs.are_columns && runs > 1 ? tables.runs
                           : tile.taps.border_is_outermost     ? tables.outermost
                                                               : tables.positions;
  return table[runs - 1][static_cast<std::size_t>(tile.positions[0]) / runs - 1];
}

/// Input in place usually has one of these channel counts. A constant stride takes no register.
DotFunction whole_half(std::int64_t stride) {
  switch (stride) {
    case 64:
      return dot_half<Sixteen, kDotPositions, 2, 64, false>;
    case 128:
      return dot_half<Sixteen, kDotPositions, 2, 128, false>;
    case 256:
      return dot_half<Sixteen, kDotPositions, 2, 256, false>;
    case 512:
      return dot_half<Sixteen, kDotPositions, 2, 512, false>;
    case 1024:
      return dot_half<Sixteen, kDotPositions, 2, 1024, false>;
    case 2048:
      return dot_half<Sixteen, kDotPositions, 2, 2048, false>;
    default:
      return kDotStrided.back();
  }
}

DotFunction dot_function(const Tile& tile, std::size_t half) {
  if (tile.runs.count > 1 || tile.taps.border != nullptr) return runs_function_of(tile);
  const auto count = static_cast<std::size_t>(tile.positions[half]);
  // Loops for a constant distance of positions also have their accumulators one after another.
  const std::int64_t position = tile.runs.position_sums == kLanes ? tile.operands.position : 0;
  if (tile.vectors == 1) {
    if (tile.blocks.last_is_single) return kDotVectorSingle[count - 1];
    if (tile.is_half_a_vector) {
      return (position == kVector / 2 ? kDotEightDense : position == kVector ? kDotEightSixteen : kDotEight)[count - 1];
    }
    return (position == kVector ? kDotVectorDense : kDotVector)[count - 1];
  }
  if (tile.blocks.last_is_single) {
    return (position == 3 ? kDotThree : position == 6 ? kDotSix : kDotSingle)[count - 1];
  }
  if (position == kChannels) return kDotDense[count - 1];
  return count == kDotPositions ? whole_half(position) : kDotStrided[count - 1];
}

void dot_tile(const Tile& tile) {
  for (std::size_t half = 0; half < 2; ++half) {
    if (tile.positions[half] == 0) continue;
    dot_function(tile, half)(tile, half);
  }
}

void begin_nothing(int, int, PanelWeights) {}
void end_nothing() {}

}  // namespace
}  // namespace bf16

const Bf16Unit& bf16_dot_unit() {
  using namespace bf16;
  const bool beside_amx = core_kind() == CoreKind::amx;  // fitted on such a machine; the others on Zen 4
  static const Bf16Unit unit{.name = "bf16_dot",
                             .coverage = PathUnit::bf16_dot,
                             .missing = missing_bf16_dot(),
                             .positions = kDotPositions,
                             .narrow_positions = kDotNarrowPositions,
                             .takes_runs = true,
                             .loads_full_halves = false,
                             .merged_width = kVector / 2,
                             .most_padding = 4.5,
                             .costs = {.position = beside_amx          ? 55.0
                                                   : splits_512_bits() ? 32.0
                                                                       : 20.0,
                                       .weights = 30.0,
                                       .tile = beside_amx ? 87.0 : 67.0,
                                       .step = beside_amx ? 20.0 : 10.0,
                                       .start = beside_amx ? 270.0 : 400.0},
                             .begin = begin_nothing,
                             .end = end_nothing,
                             .tiles = {.one = dot_tile},
                             .runs_epilogue_in_registers = true,
                             .epilogues = {.bf16 = run_epilogue<DType::bf16>},
                             .splits = {}};
  return unit;
}

#else

const Bf16Unit& bf16_dot_unit() {
  static const Bf16Unit unit{.name = "bf16_dot", .coverage = PathUnit::bf16_dot, .missing = missing_bf16_dot()};
  return unit;
}

#endif

}  // namespace gable::cpu
