// The contract between the loop nest of bf16 products (matrix_run.cpp) and the units that do them: AMX's tile registers
// and AVX512-BF16's pair product (matrix_x86.cpp), and a plain C++ twin of the former in the tests.
// A tile is two halves of up to 16 positions × 32 output lanes, summed in f32 over every tap, input channel and product
// of parts. A position holds 32 channels (64 bytes), so that one row of a tile register is one position, and a filter
// tap is nothing but another start address.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/types.h"

namespace gable::cpu {

constexpr int kMatrixLanes = 32;     // output lanes of a tile and of a panel of packed weights
constexpr int kMatrixChannels = 32;  // input channels of a block: one row of a tile register
constexpr int kHalfPositions = 16;   // the rows of a tile register
/// Packed weights of one (panel, block, tap, part): [2][16 channel pairs][16 lanes][2].
constexpr std::int64_t kWeightBlock = kMatrixChannels * kMatrixLanes;
constexpr std::int64_t kHalfFloats = kHalfPositions * kMatrixLanes;

/// Pixels of one output row: (maximum over 2×2 sums,) bias, activation, conversion, up to 32 lanes.
struct MatrixFinish {
  const float* c;      // [position][32 lanes]
  const float* below;  // of the row below where a 2×2 pool is fused, else null
  std::int64_t pixels;
  int lanes;
  const float* bias;  // 32 floats, or null
  Activation activation;
  void* y;
  std::int64_t y_pixel;  // elements
  bool streams;          // y is a multiple of 64 bytes in every pixel and goes past the caches
};
using MatrixFinishFunction = void (*)(const MatrixFinish&);

/// One tile. Strides are in elements. Input of half h, position i, block, tap, part:
/// a[h] + i*position + block*a_block + taps[tap] + part*a_part, 32 channels each.
struct MatrixCall {
  const std::uint16_t* a[2];
  int count[2];  // positions of each half that matter; count[1] may be 0, and then a[1] is not read
  std::int64_t position, a_block, a_part;
  const std::int64_t* taps;
  std::int64_t tap_count, blocks;
  std::int64_t tap_begin[2], tap_end[2];  // the others only meet zeros; a unit whose halves share weights takes all
  int last_pairs;                         // channel pairs of the last block that are not padding
  const std::uint16_t* b;                 // [block][tap][part] of kWeightBlock
  float* c;                               // [half][position][lane]
  const MatrixFinish* finish[2];  // for a unit that finishes in registers: of each half, instead of storing c; or null
};
using MatrixFunction = void (*)(const MatrixCall&);

/// Whole blocks of 32 channels of f32 positions, `pitch` elements apart, into parts of positions that follow each
/// other.
using MatrixSplitFunction = void (*)(const float* x, std::int64_t pitch, std::int64_t positions, std::int64_t part,
                                     std::uint16_t* strip);

struct MatrixUnit {
  const char* name;
  std::string missing;    // why this machine can't run it; empty: it can
  int positions;          // of a half, at most kHalfPositions
  bool reads_whole_half;  // it reads `positions` positions of a half even where fewer count
  double most_padding;    // it loses to the direct kernel where padding multiplies the products by more
  void (*begin)();        // before and after a thread's calls
  void (*end)();
  MatrixFunction tile1, tile3, tile6;  // by products a term; null where it has none
  bool finishes_in_registers;          // what finish_bf16 takes, but for pools
  MatrixFinishFunction finish_bf16;    // of all 32 lanes and without tanh, faster than the target's; or null
  MatrixSplitFunction split[4] = {};   // by number of parts: faster than the target's, or null

  MatrixFunction tile(int products) const { return products == 1 ? tile1 : products == 3 ? tile3 : tile6; }
};

/// The units of this machine's instruction set, whether it has them or not.
const MatrixUnit& amx_unit();
const MatrixUnit& bf16_dot_unit();

}  // namespace gable::cpu
