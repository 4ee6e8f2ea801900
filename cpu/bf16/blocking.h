// How a convolution is cut for the bf16 units.
//   work unit  (image, rows x columns of output, group, panels of output lanes). Threads take work units one after
//              another. A work unit stages its input once, into a strip (strip.h) of all input channels: accumulators
//              stay in registers from the first term of a sum to the last.
//   panel      32 output lanes. Its weights stream from L2 once for each tile, the strip from L2 once for each panel;
//              the taps of a block of channels find its lines in L1.
//   chunk      panels that are computed for a tile's positions before the next tile, so that the tile's input stays in
//              L1. With one tap: all, if they fit in half of L2 beside the input, else what fits in an eighth. Else
//              one.
//   tile       two halves of up to 16 positions (tile.h). Row by row: the same columns of two output rows, as a 2x2
//              pool needs them. Flat: consecutive positions of the strip; the few positions between one row's end and
//              the next row's start are computed too.
// Three kinds of bf16 problem do not stage rows:
//   in image   Tiles read the image itself where that pays. Outputs are cut into regions that read the image with the
//              same taps; padding taps are skipped. A tile of a border column holds 16 of its rows.
//   in rows    The same by a unit that takes one half at a time, row by row (in_rows.h). A half at the left or right
//              border has masks for the columns that some kernel columns read in padding, or takes its kernel columns
//              in parts, each for the positions that read the image there.
//   by images  Small images with more weights than half of L2 are taken 16 at a time: the positions of a half are one
//              pixel of 16 images. Weights pass through L2 once for 16 images instead of once for each, halves are
//              always full, and padding taps are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/bf16/geometry.h"
#include "cpu/bf16/strip.h"
#include "cpu/bf16/unit.h"

namespace gable::cpu {
namespace bf16 {

struct WorkCut {
  std::int64_t rows, columns, images, panels;  // of one work unit; the last along an axis may have fewer
  std::int64_t groups;                         // likewise; more than one are staged together, a row at a time
  std::int64_t row_blocks, column_blocks, panel_blocks, group_blocks;  // work units along each axis
  std::int64_t count;                                                  // of all work units
  bool weights_outermost;  // consecutive work units share weights, not input
};

/// Where weights stay between uses.
struct WeightsResidency {
  std::int64_t chunk;    // panels
  bool fit_l1;           // L1 holds the weights that one tile uses and the tile's input
  bool fit_l2;           // L2 holds the weights that one work unit uses
  bool from_last_level;  // L2 does not keep weights: each chunk prefetches those of the next chunk to L2
};

/// Whose lines tiles prefetch between their products. L2 still holds a thread's share of a small tensor, from the layer
/// that wrote it or read it.
struct Prefetched {
  bool input, output;
};
/// The output that multiply_panels() prefetches with a stored line lies so many pixels further: a tile.
constexpr std::int64_t kPixelsAhead = 2 * kHalfPositions;

/// The columns of a half that reads the image, at the image's left or right border.
struct BorderHalf {
  bool is_at_border;               // some of its kernel columns read padding beside the image; else the rest is empty
  TapRange read;                   // from the first to the last kernel column that some of its positions read
  std::vector<BorderMasks> masks;  // of these kernel columns; none if the half reads padding alone
  bool masks_are_outermost;        // as Taps::border_is_outermost
  bool needs_parts;                // masks can't skip all that lies in padding: takes_parts() for many columns
};

struct Blocking {
  Geometry geometry;
  Terms terms;
  int positions;             // of a half
  std::int64_t half_floats;  // from the accumulators of one half to those of the next
  bool multiplies_panels;    // multiply_panels() of loops.h computes it
  int panel_halves;          // of its tiles: two, or more where a panel's weights stay in registers from half to half
  InputPath input;
  Phases phases;
  StripShape strip;
  std::vector<std::int64_t> tap_offsets;
  std::vector<TapRange>
      column_outputs;  // read in rows: of each kernel column, the columns of outputs that read the image
  // The same of the halves of a row: [column block][half], `row_halves` for each block.
  std::vector<BorderHalf> border_halves;
  std::int64_t row_halves = 0;
  WorkCut work;
  WeightsResidency weights;
  Prefetched prefetched;
  std::size_t thread_bytes;  // workspace of a thread: accumulators, bias, strip

  bool holds_weights() const { return panel_halves > 2; }
  PanelWeights panel_weights() const {
    if (!holds_weights()) return PanelWeights::loaded;
    return terms.blocks > kHeldBlocks ? PanelWeights::held_and_streamed : PanelWeights::held;
  }
};

Blocking blocking_of(const Conv2dProblem& problem, int products, const Bf16Unit& unit, int threads);

/// Whether work units go through runs of positions: rows, or flat.
inline bool reads_rows(const Blocking& b) {
  return b.input == InputPath::staged || b.input == InputPath::in_place || b.input == InputPath::in_rows;
}

/// Time that starting and storing a half takes, in positions.
constexpr std::int64_t kHalfCost = 2;

/// Rows of outputs that a half takes together, where a work unit's rows have so many columns: several short ones whose
/// positions fill the half, of a unit that takes runs.
std::int64_t rows_of_half(const Blocking& blocking, const Bf16Unit& unit, std::int64_t columns);

/// Whether flat tiles need less time than tiles row by row, for a work unit of rows x columns.
bool prefers_flat(const Blocking& blocking, const Bf16Unit& unit, std::int64_t rows, std::int64_t columns);

/// Tiles whose accumulators exist at a time: the one that is computed, and the previous one, whose epilogue overlaps.
constexpr std::int64_t kTilesAlive = 2;
constexpr std::int64_t kTileFloats = 2 * kHalfFloats;
/// Halves whose accumulators exist at a time, of a unit that takes one half at a time.
constexpr std::int64_t kMaxHalves = 16;
constexpr std::int64_t most_halves(const Blocking& b) { return kMaxHalves * kHalfFloats / b.half_floats; }
/// Floats of a thread's accumulators, of tiles or of a panel.
constexpr std::int64_t accumulator_floats(const Bf16Unit& unit) {
  return unit.loads_full_halves ? kTilesAlive * kTileFloats : kMaxHalves * kHalfFloats;
}
/// What a thread's strip holds: the input of the work units with this WorkUnit::input, in this run of the plan.
struct StagedInput {
  std::int64_t run, input;
};
/// Floats of a thread's accumulators and of one panel's bias, which come before its StagedInput.
constexpr std::int64_t staged_input_offset(const Bf16Unit& unit) { return accumulator_floats(unit) + kLanes; }
/// Floats before a thread's strip: a cache line for its StagedInput.
constexpr std::int64_t head_floats(const Bf16Unit& unit) { return staged_input_offset(unit) + 16; }

}  // namespace bf16

/// Empty, or why these kernels do not take the problem. `products` is 1 for bf16 storage, 3 or 4 for f16, 3 or 6 for
/// f32.
std::string bf16_refusal(const Conv2dProblem& problem, int products, const Bf16Unit& unit);

/// How long a run will last. Precondition: bf16_refusal() is empty.
double bf16_seconds(const Conv2dProblem& problem, int products, const Bf16Unit& unit, int threads);

}  // namespace gable::cpu
