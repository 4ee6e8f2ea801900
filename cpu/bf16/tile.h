// What a bf16 unit computes in one call: a tile. A tile is two halves of up to 16 positions x 32 output lanes,
// accumulated in f32 over every tap, input channel and product of parts. A position holds 32 input channels (64 bytes):
// one row of an AMX tile register is one position, and a tap of the kernel is a constant address offset.
#pragma once

#include <cstdint>

#include <gable/problem.h>
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

constexpr int kLanes = 32;          // output lanes of a tile and of a panel of packed weights
constexpr int kVector = 16;         // lanes of a vector; a panel of at most so many lanes multiplies one vector
constexpr int kChannels = 32;       // input channels of a block: one row of a tile register
constexpr int kHalfPositions = 16;  // rows of a tile register
/// Packed weights of one (panel, block, tap, part): [2][16 channel pairs][16 lanes][2].
constexpr std::int64_t kWeightBlock = kChannels * kLanes;
/// Accumulators of one half.
constexpr std::int64_t kHalfFloats = kHalfPositions * kLanes;
/// Most positions of a half of one vector, whose accumulators take the room of two halves.
constexpr int kNarrowPositions = 2 * kHalfPositions;

/// Accumulators to output, for consecutive pixels of one output row (or column): 2x2 max-pool, bias, activation,
/// conversion and store of up to 32 lanes.
struct Epilogue {
  const float* accumulators;        // [position][32 lanes]
  const float* accumulators_below;  // of the next row, where a 2x2 pool is fused; else null
  std::int64_t pixels;
  int lanes;
  const float* bias;  // 32 floats, or null
  Activation activation;
  void* y;
  std::int64_t y_pixel;  // elements from one pixel to the next
  bool non_temporal;     // the stores; then all 32 lanes of every pixel are valid and aligned to 64 bytes
  void (*run)(const Epilogue&);
};
using EpilogueFunction = void (*)(const Epilogue&);

/// The epilogues of one tile: at most one for each position.
struct PendingEpilogues {
  Epilogue calls[2 * kHalfPositions];
  int count = 0;
};

/// Memory to prefetch during products: `rows` x `runs` runs of consecutive cache lines, `lines_per_step` of them after
/// each step. A step is the products of one block of channels and one tap.
struct Prefetch {
  const char* row = nullptr;
  std::int64_t run_lines = 0, run_pitch = 0, runs = 0;
  std::int64_t row_pitch = 0, rows = 0;
  std::int64_t lines_per_step = 0;
  // Progress. No lines left in the run: everything is prefetched.
  const char* next_line = nullptr;
  std::int64_t lines_left = 0, run = 0;

  void begin() {
    next_line = row;
    lines_left = run_lines;
  }
  void begin_next_run() {
    if (++run == runs) {
      run = 0;
      row += row_pitch;
      if (--rows == 0) return;
    }
    next_line = row + run * run_pitch;
    lines_left = run_lines;
  }
};

/// Where a tile's input and weights lie. Strides are in elements. The input of half h, position i, block, tap and part
/// is a[h] + i*position + block*a_block + tap_offsets[tap] + part*a_part, up to 32 channels each; the last block lies
/// at a_last_block instead of block*a_block.
struct Operands {
  const std::uint16_t* a[2];  // a[1] is not read if the second half has no positions
  std::int64_t position, a_block, a_last_block, a_part;
  const std::int64_t* tap_offsets;
  const std::uint16_t* b;  // [block][tap][part] of kWeightBlock
  bool b_bypasses_l1;      // weights are kept in L2 only, which leaves L1 to the input
};

/// Columns of a half that may lie beside the image: its first and last two, or each of up to four. A kernel column's
/// masks are all ones for those that it reads in the image, else zero.
constexpr int kBorderColumns = 4;
struct BorderMasks {
  std::uint16_t column[kBorderColumns];
};

/// The taps of a tile.
struct Taps {
  std::int64_t count;  // in each block of the packed weights
  // A unit whose halves share weights takes rows x columns taps, `pitch` apart, from tap_offsets[0] and b on.
  std::int64_t rows, columns, pitch;
  // A unit whose halves load weights separately takes the taps [begin, end) of each half. Taps outside read padding
  // only and are skipped.
  TapRange of_half[2];
  // If run > 0, only the first `run` of every `pitch` of these taps: some columns of each kernel row.
  std::int64_t run = 0;
  // Only for a unit that takes one half at a time: the masks of `border_columns` kernel columns, or null. Each kernel
  // row of of_half has all of them.
  const BorderMasks* border = nullptr;
  std::int64_t border_columns = 0;
  bool border_is_outermost = false;  // all masks but those of the first and the last column are ones
};

/// The input channels of a tile.
struct ChannelBlocks {
  std::int64_t count;
  int last_pairs;  // channel pairs of the last block
  // The last pair has one channel, and the element after it may be NaN. Units that load full halves do not take this.
  bool last_is_single;
};

/// Work that overlaps with a tile's products. A unit that cannot overlap leaves previous->count unchanged.
struct Overlap {
  const Epilogue* next;  // this tile's own epilogues run later; this tile prefetches their output lines
  int next_count;
  PendingEpilogues* previous;  // the previous tile's epilogues run between this tile's products
  int y_bytes;                 // of 32 lanes of output
  Prefetch* prefetch;
};

/// The positions of a half as runs of equal length, of a unit that takes one half at a time. A row of the image or a
/// column is a run; Operands::position leads from a position of a run to the next.
struct PositionRuns {
  int count = 1;
  std::int64_t input = 0, sums = 0, y = 0;  // from one run to the next: elements of input, floats, elements of output
  std::int64_t position_sums = kLanes;      // floats from the accumulators of a position to those of the next
  bool are_columns = false;                 // else a position of a run is a column
};

struct Tile {
  Operands operands;
  Taps taps;
  ChannelBlocks blocks;
  int positions[2];       // used positions of each half; the second half may have none
  int vectors;            // of 16 lanes: 2, or 1 where the panel has no more. Accumulators of the other are not written
  bool is_half_a_vector;  // one vector, of at most 8 lanes
  float* accumulators;    // [half][position][lane]
  Overlap overlap;
  // Only for a unit that takes one half at a time:
  PositionRuns runs;                            // of the first half
  std::int64_t repeats = 1;                     // the first half is computed so often
  std::int64_t repeat_input = 0, repeat_y = 0;  // elements of input and of output from one repeat to the next
  std::int64_t half_floats = kHalfFloats;       // from the accumulators of one repeat to those of the next
  bool adds = false;                            // the products are added to the accumulators
  // Distance in elements from these weights to the weights that are read after them from the last level; 0: no
  // prefetch. The first two halves prefetch one vector of lanes each. first_half: how many halves have used these
  // weights before.
  std::int64_t next_weights = 0, first_half = 0;
  /// The epilogue of the first half, run in registers, which replaces the store of accumulators; or null.
  const Epilogue* register_epilogue = nullptr;
};
using TileFunction = void (*)(const Tile&);

/// A panel whose accumulators are in registers, and wait for their epilogue; [half].
struct PendingPanel {
  int skipped[2] = {0, 0};  // as in PanelHalf
  int pixels[2] = {0, 0};   // none of the first half: there is no such panel
  std::uint16_t* y[2];
  int lanes = 0;
  const float* bias = nullptr;  // of the panel, or null
};

/// A half of a PanelTile.
struct PanelHalf {
  const std::uint16_t* a;
  int skipped;       // positions before those that are stored
  int pixels;        // positions that are stored
  std::uint16_t* y;  // of the first of them, first lane
};

/// Blocks of input channels whose weights of one panel fit the registers beside a half's input and accumulators.
constexpr std::int64_t kHeldBlocks = 2;
/// The most blocks of a panel of which the first kHeldBlocks are held, and the others' weights are loaded for each
/// half.
constexpr std::int64_t kMostHeldBlocks = 3;  // of four, loading all for two halves takes as long
/// The most halves of a tile whose panels hold their weights in registers.
constexpr int kMaxPanelHalves = 8;

/// A tile of a 1x1 convolution of bf16, times consecutive panels. A panel's accumulators are stored between the first
/// products of the next one, and its epilogue runs between the others, also from one tile to the next.
struct PanelTile {
  Operands operands;                // weights of the first panel; a, tap_offsets and a_part are not read
  std::int64_t blocks;              // of input channels
  std::int64_t lanes;               // of all panels; none: only the pending epilogues run
  PanelHalf half[kMaxPanelHalves];  // up to two, or as many as there are where weights are held
  int halves;
  bool holds_weights;    // of kHeldBlocks blocks of each panel in registers; halves take turns
  std::int64_t y_pixel;  // elements from one pixel to the next
  const float* bias;     // of the first lane, or null
  bool relu, non_temporal;
  std::int64_t lines_per_step;  // of an epilogue, between two steps
  std::int64_t output_ahead;    // elements from a stored line to the one that is prefetched with it; 0: none
  float* accumulators;          // of the pending panel, [half][position][32 lanes], once they are stored
  PendingPanel pending;
};
using PanelsFunction = void (*)(PanelTile&);

}  // namespace gable::cpu::bf16
