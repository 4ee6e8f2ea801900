// AVX512-BF16's pair product: 32 multiply-adds in an instruction. The tile's halves are computed one after the other.
// A half: 14 positions x 2 vectors of 16 lanes = 28 accumulators in registers, 2 registers of weights, 1 broadcast pair
// of channels. A step of two channels is 28 products, 2 loads of weights (L1/L2) and 14 of input (L1).
#include <array>
#include <cstring>
#include <utility>

#include "cpu/bf16/cpuid.h"
#include "cpu/bf16/epilogue_x86-inl.h"
#include "cpu/bf16/unit.h"

namespace gable::cpu {

#if defined(__x86_64__)
namespace bf16 {
namespace {

constexpr int kDotPositions = 14;

GABLE_CPU_BF16 inline __m512i broadcast_pair(const std::uint16_t* a) {
  int channels;
  std::memcpy(&channels, a, sizeof channels);
  return _mm512_set1_epi32(channels);
}
/// The pair with zero as its second channel, which may be NaN in memory.
GABLE_CPU_BF16 inline __m512i broadcast_first(const std::uint16_t* a) {
  __m512i first = _mm512_set1_epi32(0xffff);
  asm("" : "+v"(first));  // rebuilds it each time; kept through the loops, it takes a register from the accumulators
  return _mm512_and_si512(broadcast_pair(a), first);
}

/// Products of one pair of channels; kSingle: of its first one.
template <int kPositions, bool kSingle>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void dot_pair(__m512 (&acc)[kPositions][2], const std::uint16_t* a,
                                                                   std::int64_t stride, const std::uint16_t* weights) {
  const __m512bh low = (__m512bh)_mm512_loadu_si512(weights);
  const __m512bh high = (__m512bh)_mm512_loadu_si512(weights + kWeightBlock / 2);
#pragma GCC unroll 14
  for (int i = 0; i < kPositions; ++i) {
    const __m512bh x = (__m512bh)(kSingle ? broadcast_first(a + i * stride) : broadcast_pair(a + i * stride));
    acc[i][0] = _mm512_dpbf16_ps(acc[i][0], x, low);
    acc[i][1] = _mm512_dpbf16_ps(acc[i][1], x, high);
  }
}

/// One half of exactly kPositions positions. kStride is the elements between positions, 0: known at run time only.
/// kSingle: the only block ends with half a pair.
template <int kPositions, int kStride, bool kSingle = false>
GABLE_CPU_BF16 void dot_half(const Tile& tile, std::size_t half) {
  const Operands& in = tile.operands;
  const std::int64_t stride = kStride == 0 ? in.position : kStride;
  __m512 acc[kPositions][2];
  for (auto& position : acc) position[0] = position[1] = _mm512_setzero_ps();
  const std::int64_t first_tap = tile.taps.of_half[half].begin, end_tap = tile.taps.of_half[half].end;
  const std::int64_t blocks = tile.blocks.count;
  const int last_pairs = tile.blocks.last_pairs;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const int pairs = kSingle ? last_pairs - 1 : block + 1 == blocks ? last_pairs : kChannels / 2;
    const std::uint16_t* b = in.b + (block * tile.taps.count + first_tap) * kWeightBlock;
    for (std::int64_t tap = first_tap; tap < end_tap; ++tap, b += kWeightBlock) {
      const std::uint16_t* a = in.a[half] + block * in.a_block + in.tap_offsets[tap];
      const std::uint16_t* weights = b;
      for (int pair = 0; pair < pairs; ++pair, a += 2, weights += kLanes) {
        // A distance of two blocks covers L3's latency. L2's hardware prefetcher restarts at each block.
        __builtin_prefetch(weights + 2 * kWeightBlock);
        __builtin_prefetch(weights + 2 * kWeightBlock + kWeightBlock / 2);
        dot_pair<kPositions, false>(acc, a, stride, weights);
      }
      if constexpr (kSingle) dot_pair<kPositions, true>(acc, a, stride, weights);
    }
  }
  if (tile.register_epilogue[half] != nullptr) {
    const Epilogue& epilogue = *tile.register_epilogue[half];
    const EpilogueVectors<DType::bf16> vectors(epilogue);
    std::uint16_t* y = static_cast<std::uint16_t*>(epilogue.y);
#pragma GCC unroll 14
    for (int i = 0; i < kPositions; ++i) vectors.store(acc[i][0], acc[i][1], y + i * epilogue.y_pixel);
    return;
  }
  float* out = tile.accumulators + static_cast<std::int64_t>(half) * kHalfFloats;
#pragma GCC unroll 14
  for (int i = 0; i < kPositions; ++i) {
    _mm512_storeu_ps(out + i * kLanes, acc[i][0]);
    _mm512_storeu_ps(out + i * kLanes + kLanes / 2, acc[i][1]);
  }
}

using DotFunction = void (*)(const Tile&, std::size_t half);
template <int kStride, bool kSingle, int... kPositions>
constexpr std::array<DotFunction, sizeof...(kPositions)> dot_table(std::integer_sequence<int, kPositions...>) {
  return {&dot_half<kPositions + 1, kStride, kSingle>...};
}
constexpr auto kDotDense = dot_table<kChannels, false>(std::make_integer_sequence<int, kDotPositions>());
constexpr auto kDotStrided = dot_table<0, false>(std::make_integer_sequence<int, kDotPositions>());
constexpr auto kDotSingle = dot_table<0, true>(std::make_integer_sequence<int, kDotPositions>());
/// Tables for folded images of three channels with stride 1 and 2.
constexpr auto kDotThree = dot_table<3, true>(std::make_integer_sequence<int, kDotPositions>());
constexpr auto kDotSix = dot_table<6, true>(std::make_integer_sequence<int, kDotPositions>());

/// Input in place usually has one of these channel counts. A constant stride takes no register.
DotFunction whole_half(std::int64_t stride) {
  switch (stride) {
    case 64:
      return dot_half<kDotPositions, 64>;
    case 128:
      return dot_half<kDotPositions, 128>;
    case 256:
      return dot_half<kDotPositions, 256>;
    case 512:
      return dot_half<kDotPositions, 512>;
    case 1024:
      return dot_half<kDotPositions, 1024>;
    case 2048:
      return dot_half<kDotPositions, 2048>;
    default:
      return kDotStrided.back();
  }
}

DotFunction dot_function(const Tile& tile, std::size_t half) {
  const auto count = static_cast<std::size_t>(tile.positions[half]);
  if (tile.blocks.last_is_single) {
    return (tile.operands.position == 3 ? kDotThree : tile.operands.position == 6 ? kDotSix : kDotSingle)[count - 1];
  }
  if (tile.operands.position == kChannels) return kDotDense[count - 1];
  return count == kDotPositions ? whole_half(tile.operands.position) : kDotStrided[count - 1];
}

void dot_tile(const Tile& tile) {
  for (std::size_t half = 0; half < 2; ++half) {
    if (tile.positions[half] == 0) continue;
    dot_function(tile, half)(tile, half);
  }
}

void begin_nothing(int, int) {}
void end_nothing() {}

}  // namespace
}  // namespace bf16

const Bf16Unit& bf16_dot_unit() {
  using namespace bf16;
  static const Bf16Unit unit{.name = "bf16_dot",
                             .coverage = PathUnit::bf16_dot,
                             .missing = missing_bf16_dot(),
                             .positions = kDotPositions,
                             .loads_full_halves = false,
                             .most_padding = 1.7,
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
  static const Bf16Unit unit{.name = "bf16_dot", .coverage = PathUnit::bf16_dot, .missing = bf16::missing_bf16_dot()};
  return unit;
}

#endif

}  // namespace gable::cpu
