// See bf16_emulated.h. Subnormal operands count as zero, as on AMX. Splits and f16 epilogues are AMX's own functions
// where this CPU has AVX512-BF16.
#include "tests/cpu/bf16_emulated.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/bf16/panels-inl.h"
#include "cpu/bf16/tile-inl.h"
#include "cpu/common/half.h"
#include "cpu/planes/whole_tile-inl.h"

namespace gable::cpu::test {
namespace {

using namespace bf16;

thread_local int positions_of_a_half = 0, pairs_of_a_block = 0;
thread_local bool streams_weights = false;  // through register 5

/// One row of a tile of sums. Vectors of the compiler that every CPU has, because tests spend most of their time in its
/// products, also where a compiler would not make vectors itself. GCC keeps wider ones in memory.
using Quad = float __attribute__((vector_size(4 * sizeof(float))));
constexpr int kQuads = kVector / 4;
struct Lanes {
  Quad quad[kQuads];
};

/// A row of a tile of operands. memcpy() checks the addresses of the whole row, so a build with sanitizers need not
/// check each element again, which would take most of the tests' time.
struct Halves {
  std::uint16_t half[2 * kVector];
  Halves(const std::uint16_t* from, int count) {
    std::memcpy(half, from, static_cast<std::size_t>(count) * sizeof *from);
  }
};
// Called by no function but the next two. GCC inlines only what has the same checks, hence no bf16_to_f32().
__attribute__((no_sanitize("address", "undefined"))) inline float operand(std::uint16_t half) {
  return (half & 0x7f80u) == 0 ? 0.0f : __builtin_bit_cast(float, static_cast<std::uint32_t>(half) << 16);
}
__attribute__((no_sanitize("address", "undefined"))) void set_input(const Halves& from, int count, float* to) {
  for (int i = 0; i < count; ++i) to[i] = operand(from.half[i]);
}
/// The first and the second channel of each pair.
__attribute__((no_sanitize("address", "undefined"))) void set_weights(const Halves& from, Lanes* to) {
  for (int i = 0; i < kVector; ++i) {
    to[0].quad[i / 4][i % 4] = operand(from.half[2 * i]);
    to[1].quad[i / 4][i % 4] = operand(from.half[2 * i + 1]);
  }
}

class EmulatedTiles {
 public:
  template <int kTile>
  void zero() {
    for (Lanes& row : accumulators_[kTile]) row = Lanes{};
  }
  template <int kTile, bool kKeepsInL1 = true>
  void load(const std::uint16_t* rows, std::int64_t stride) {
    if ((kTile == 4 || kTile == 5) && !(kTile == 5 && streams_weights)) {
      const int channels = 2 * pairs_of_a_block;
      for (int row = 0; row < positions_of_a_half; ++row)
        set_input(Halves(rows + row * stride, channels), channels, inputs_[kTile == 5 ? 1 : 0][row]);
    } else {
      for (int pair = 0; pair < pairs_of_a_block; ++pair)
        set_weights(Halves(rows + pair * stride, 2 * kVector), weights_[weights_slot(kTile)][pair]);
    }
  }
  /// All indices are those of load(), which is checked: a build with sanitizers spends most of its time here otherwise.
  template <int kSum, int kA, int kB>
  __attribute__((no_sanitize("address", "undefined"))) void dot() {
    const auto& weights = weights_[weights_slot(kB)];
    for (int row = 0; row < positions_of_a_half; ++row) {
      const float* x = inputs_[kA - kFirstInput][row];
      Quad sum[kQuads];
#pragma GCC unroll 4
      for (int q = 0; q < kQuads; ++q) sum[q] = accumulators_[kSum][row].quad[q];
      for (int pair = 0; pair < pairs_of_a_block; ++pair) {
#pragma GCC unroll 4
        for (int q = 0; q < kQuads; ++q) {
          sum[q] += x[2 * pair] * weights[pair][0].quad[q];
          sum[q] += x[2 * pair + 1] * weights[pair][1].quad[q];
        }
      }
#pragma GCC unroll 4
      for (int q = 0; q < kQuads; ++q) accumulators_[kSum][row].quad[q] = sum[q];
    }
  }
  template <int kTile>
  void store(float* rows, std::int64_t stride) {
    for (int row = 0; row < positions_of_a_half; ++row)
      std::memcpy(rows + row * stride, &accumulators_[kTile][row], sizeof(Lanes));
  }

  static bool overlaps(const Epilogue& call) {
    return call.accumulators_below == nullptr && call.activation != Activation::tanh && !call.non_temporal;
  }
  class LineEpilogue {
   public:
    explicit LineEpilogue(const Epilogue& call) : call_(call) {}
    void line(const float* accumulators, std::uint16_t* y) const {
      for (int lane = 0; lane < call_.lanes; ++lane) {
        const float sum = accumulators[lane] + (call_.bias == nullptr ? 0.0f : call_.bias[lane]);
        y[lane] = f32_to_bf16(call_.activation == Activation::relu ? std::max(0.0f, sum) : sum);
      }
    }

   private:
    const Epilogue& call_;
  };

  class PanelEpilogue {
   public:
    PanelEpilogue(const PanelTile& tile, const PendingPanel& panel) : panel_(panel), relu_(tile.relu) {}
    void lines(const float* accumulators, std::uint16_t* y, std::int64_t pitch, std::int64_t count) const {
      for (std::int64_t i = 0; i < count; ++i, accumulators += kLanes, y += pitch) {
        for (int lane = 0; lane < panel_.lanes; ++lane) {
          const float sum = accumulators[lane] + (panel_.bias == nullptr ? 0.0f : panel_.bias[lane]);
          y[lane] = f32_to_bf16(relu_ ? std::max(0.0f, sum) : sum);
        }
      }
    }

   private:
    const PendingPanel& panel_;
    bool relu_;
  };

  static void prefetch_for_read(const char* line) { __builtin_prefetch(line); }
  static void prefetch_for_write(const char* line) { __builtin_prefetch(line); }

 private:
  // Of AMX's eight tiles, 0 to 3 hold sums, 4 and 5 input, 6 and 7 weights; 2, 3 and 5 may hold weights instead.
  static constexpr int kFirstInput = 4;
  static constexpr int weights_slot(int tile) { return tile >= 6 ? tile - 6 : tile == 5 ? 4 : tile; }
  // A thread's registers, which keep their values from one tile to the next.
  static inline thread_local Lanes accumulators_[4][16];
  static inline thread_local float inputs_[2][16][2 * kVector];  // positions x channels
  static inline thread_local Lanes weights_[5][16][2];           // pairs of channels x the first and the second of each
};

void begin(int positions, int pairs, PanelWeights weights) {
  positions_of_a_half = positions;
  pairs_of_a_block = pairs;
  streams_weights = weights == PanelWeights::held_and_streamed;
}
void end() {}

}  // namespace

const Bf16Unit& emulated_unit() {
  static const Bf16Unit unit{.name = "emulated",
                             .coverage = PathUnit::emulated,
                             .missing = "",
                             .positions = kHalfPositions,
                             .loads_full_halves = true,
                             .merged_width = kChannels,
                             .most_padding = 1e9,
                             .costs = {.position = 2.5, .weights = 80, .start = 350},
                             .begin = begin,
                             .end = end,
                             .tiles = {.one = bf16_tile<EmulatedTiles, 1>,
                                       .three = bf16_tile<EmulatedTiles, 3>,
                                       .four = bf16_tile<EmulatedTiles, 4>,
                                       .six = bf16_tile<EmulatedTiles, 6>},
                             .panels = bf16_panels<EmulatedTiles>,
                             .runs_epilogue_in_registers = false,
                             .epilogues = {.bf16 = nullptr, .f16 = amx_unit().epilogues.f16},
                             .splits = amx_unit().splits};
  return unit;
}

const planes::TileUnit& emulated_planes() {
  static const planes::TileUnit unit = [] {
    planes::TileUnit made = planes::whole_tile_unit<EmulatedTiles>();
    made.name = "emulated";
    made.coverage = PathUnit::emulated;
    made.begin = [](int, int steps) { begin(kHalfPositions, steps, PanelWeights::loaded); };
    return made;
  }();
  return unit;
}

}  // namespace gable::cpu::test
