// The contract between the loop nest of bf16 products (conv2d.cpp) and the units that do them: AMX's tile
// registers and AVX512-BF16's pair product (x86.cpp), and a plain C++ twin of the former in the tests. A tile is
// two halves of up to 16 positions × 32 output lanes, summed in f32 over every tap, input channel and product of parts.
// A position holds 32 channels (64 bytes), so that one row of a tile register is one position, and a filter tap is
// nothing but another start address.
#pragma once

#include <cstdint>
#include <string>

#include <gable/problem.h>

namespace gable::cpu {

constexpr int kBf16Lanes = 32;      // output lanes of a tile and of a panel of packed weights
constexpr int kBf16Channels = 32;   // input channels of a block: one row of a tile register
constexpr int kHalfPositions = 16;  // the rows of a tile register
/// Packed weights of one (panel, block, tap, part): [2][16 channel pairs][16 lanes][2].
constexpr std::int64_t kWeightBlock = kBf16Channels * kBf16Lanes;
constexpr std::int64_t kHalfFloats = kHalfPositions * kBf16Lanes;

/// Pixels of one output row: (maximum over 2×2 sums,) bias, activation, conversion, up to 32 lanes.
struct Bf16Finish {
  const float* c;      // [position][32 lanes]
  const float* below;  // of the row below where a 2×2 pool is fused, else null
  std::int64_t pixels;
  int lanes;
  const float* bias;  // 32 floats, or null
  Activation activation;
  void* y;
  std::int64_t y_pixel;            // elements
  bool streams;                    // y is a multiple of 64 bytes in every pixel and goes past the caches
  void (*run)(const Bf16Finish&);  // which does it
};
using Bf16FinishFunction = void (*)(const Bf16Finish&);

/// What is left to do of a tile: at most one call a position.
struct Bf16Finishes {
  Bf16Finish calls[2 * kHalfPositions];
  int count = 0;
};

/// Input that is read next, `rows` × `runs` stretches of memory: its lines are brought closer during products, `a_step`
/// of them a step, so that whoever reads them does not wait for the last level.
struct Bf16ReadAhead {
  const char* row = nullptr;
  std::int64_t run_lines = 0, run_pitch = 0, runs = 0;
  std::int64_t row_pitch = 0, rows = 0;
  std::int64_t a_step = 0;
  // Where it stands: the next line, how many are left of its run (none: all are read), and which run it is.
  const char* line = nullptr;
  std::int64_t left = 0, run = 0;

  void begin() {
    line = row;
    left = run_lines;
  }
  void next_run() {
    if (++run == runs) {
      run = 0;
      row += row_pitch;
      if (--rows == 0) return;
    }
    line = row + run * run_pitch;
    left = run_lines;
  }
};

/// One tile. Strides are in elements. Input of half h, position i, block, tap, part:
/// a[h] + i*position + block*a_block + taps[tap] + part*a_part, 32 channels each.
struct Bf16Call {
  const std::uint16_t* a[2];
  int count[2];  // positions of each half that matter; count[1] may be 0, and then a[1] is not read
  std::int64_t position, a_block, a_part;
  const std::int64_t* taps;
  std::int64_t tap_count, blocks;
  std::int64_t tap_begin[2], tap_end[2];  // the others only meet zeros; for a unit whose halves have own weights
  // Those that a unit takes whose halves share weights: rows × columns of them, from taps[0] and b on.
  std::int64_t tap_rows, tap_columns, tap_pitch;
  int last_pairs;          // channel pairs of the last block that are not padding
  bool last_is_single;     // the last one's second channel is not to be used; never for a unit that reads whole halves
  const std::uint16_t* b;  // [block][tap][part] of kWeightBlock
  bool b_passes_l1;        // L2 keeps it, and L1 the input
  float* c;                // [half][position][lane]
  // What will be done with the sums, whose lines of output are fetched meanwhile; what is done meanwhile with the sums
  // before (a unit that does not leaves the count), and what to read ahead.
  const Bf16Finish* later;
  int later_count;
  Bf16Finishes* before;
  int y_bytes;  // of 32 lanes
  Bf16ReadAhead* reads;
  const Bf16Finish* finish[2];  // for a unit that finishes in registers: of each half, instead of storing c; or null
};
using Bf16Function = void (*)(const Bf16Call&);

/// Whole blocks of 32 channels of positions, `pitch` elements apart, into parts of positions that follow each other.
using Bf16SplitFunction = void (*)(const void* x, std::int64_t pitch, std::int64_t positions, std::int64_t part,
                                   std::uint16_t* strip);

/// bf16 parts of a value: f16 and bf16 hold at most 11 and 8 bits, so 2 parts and 1 are exact; f32's 24 take 3.
constexpr int parts_of(int products) { return products == 1 ? 1 : products == 6 ? 3 : 2; }

struct Bf16Unit {
  const char* name = "";
  std::string missing;            // why this machine can't run it; empty: it can
  int positions = 0;              // the most of a half, up to kHalfPositions
  bool reads_whole_half = false;  // it reads `positions` positions of a half even where fewer count
  double most_padding = 0;        // it loses to the direct kernel where padding multiplies the products by more
  // Before and after a thread's calls, which take so many positions a half and so many channel pairs of a block.
  void (*begin)(int positions, int pairs) = nullptr;
  void (*end)() = nullptr;
  // By products a term; null where it has none.
  Bf16Function tile1 = nullptr, tile3 = nullptr, tile4 = nullptr, tile6 = nullptr;
  bool finishes_in_registers = false;  // what finish_bf16 takes, but for pools
  // Of all 32 lanes and without tanh, faster than the target's; or null.
  Bf16FinishFunction finish_bf16 = nullptr, finish_f16 = nullptr;
  // Faster than the target's, or null; of f32 by the number of parts.
  Bf16SplitFunction split_f16 = nullptr;
  Bf16SplitFunction split_f32[4] = {};

  Bf16Function tile(int products) const {
    return products == 1 ? tile1 : products == 3 ? tile3 : products == 4 ? tile4 : tile6;
  }
  Bf16FinishFunction finish(DType type) const {
    return type == DType::bf16 ? finish_bf16 : type == DType::f16 ? finish_f16 : nullptr;
  }
  Bf16SplitFunction split(DType type, int parts) const { return type == DType::f16 ? split_f16 : split_f32[parts]; }
};

/// The units of this machine's instruction set, whether it has them or not.
const Bf16Unit& amx_unit();
const Bf16Unit& bf16_dot_unit();

}  // namespace gable::cpu
