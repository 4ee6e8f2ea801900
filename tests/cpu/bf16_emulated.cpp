// See bf16_emulated.h. Subnormal operands count as zero, as on AMX. Staging is AMX's own where this CPU can run it.
#include "tests/cpu/bf16_emulated.h"

#include <algorithm>
#include <cstdint>

#include "cpu/bf16/tile-inl.h"
#include "cpu/common/half.h"

namespace gable::cpu::test {
namespace {

float operand(std::uint16_t half) { return (half & 0x7f80u) == 0 ? 0.0f : bf16_to_f32(half); }

thread_local int positions_of_a_half = 0, pairs_of_a_block = 0;

class EmulatedTiles {
 public:
  template <int kTile>
  void zero() {
    for (auto& row : sums_[kTile]) {
      for (float& sum : row) sum = 0.0f;
    }
  }
  template <int kTile, bool kKeepsInL1 = true>
  void load(const std::uint16_t* rows, std::int64_t stride) {
    const bool is_input = kTile < 6;
    for (int row = 0; row < (is_input ? positions_of_a_half : pairs_of_a_block); ++row) {
      for (int i = 0; i < (is_input ? 2 * pairs_of_a_block : 32); ++i)
        operands_[kTile - 4][row][i] = operand(rows[row * stride + i]);
    }
  }
  template <int kSum, int kA, int kB>
  void dot() {
    for (int row = 0; row < positions_of_a_half; ++row) {
      for (int pair = 0; pair < pairs_of_a_block; ++pair) {
        const float* x = &operands_[kA - 4][row][2 * pair];
        for (int lane = 0; lane < 16; ++lane) {
          const float* w = &operands_[kB - 4][pair][2 * lane];
          sums_[kSum][row][lane] += x[0] * w[0];
          sums_[kSum][row][lane] += x[1] * w[1];
        }
      }
    }
  }
  template <int kTile>
  void store(float* rows, std::int64_t stride) {
    for (int row = 0; row < positions_of_a_half; ++row) {
      for (int lane = 0; lane < 16; ++lane) rows[row * stride + lane] = sums_[kTile][row][lane];
    }
  }

  static bool finishes(const Bf16Finish& call) {
    return call.lanes == kBf16Lanes && call.below == nullptr && call.activation != Activation::tanh && !call.streams;
  }
  class Finish {
   public:
    explicit Finish(const Bf16Finish& call) : call_(call) {}
    void line(const float* c, std::uint16_t* y) const {
      for (int lane = 0; lane < kBf16Lanes; ++lane) {
        const float sum = c[lane] + (call_.bias == nullptr ? 0.0f : call_.bias[lane]);
        y[lane] = f32_to_bf16(call_.activation == Activation::relu ? std::max(0.0f, sum) : sum);
      }
    }

   private:
    const Bf16Finish& call_;
  };

  static void will_read(const char* line) { __builtin_prefetch(line); }
  static void will_write(const char* line) { __builtin_prefetch(line); }

 private:
  float sums_[4][16][16];
  float operands_[4][16][32];
};

void begin(int positions, int pairs) {
  positions_of_a_half = positions;
  pairs_of_a_block = pairs;
}
void end() {}

}  // namespace

const Bf16Unit& emulated_unit() {
  static const Bf16Unit unit{.name = "emulated",
                             .missing = "",
                             .positions = kHalfPositions,
                             .reads_whole_half = true,
                             .most_padding = 1e9,
                             .begin = begin,
                             .end = end,
                             .tile1 = bf16_tile<EmulatedTiles, 1>,
                             .tile3 = bf16_tile<EmulatedTiles, 3>,
                             .tile4 = bf16_tile<EmulatedTiles, 4>,
                             .tile6 = bf16_tile<EmulatedTiles, 6>,
                             .finishes_in_registers = false,
                             .finish_bf16 = nullptr,
                             .finish_f16 = amx_unit().finish_f16,
                             .split_f16 = amx_unit().split_f16,
                             .split_f32 = {nullptr, nullptr, amx_unit().split_f32[2], amx_unit().split_f32[3]}};
  return unit;
}

}  // namespace gable::cpu::test
