// How the planes kernel cuts a problem.
//   work unit  images x rows x columns of output, one group, some panels. Its input is staged once, for all its panels,
//              into a strip that stays in L2: [step][row phase][column phase][image][row][column] of 32-bit elements. A
//              phase holds the rows (columns) of equal remainder modulo the stride, so that neighbouring outputs read
//              neighbouring positions and a tap is a constant offset. Images of one row of pixels need no strip: tiles
//              of f32 vectors may read them in place, whatever their type.
//   panel      the lanes of a tile. Its weights pass once for each tile, mostly from L1 or L2.
//              If images are small, 2 vectors of output channels (pixels by lanes, tile_unit.h).
//   tile       1, 2 or 4 vectors of positions x the lanes of a panel. Flat: consecutive positions of the strip,
//              including positions between the end of one row and the start of the next; row by row if that takes fewer
//              vectors. Pixels by lanes: up to 14 pixels of one row; kernel rows that read padding only are skipped.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <vector>

#include "cpu/planes/kernels.h"
#include "cpu/planes/tile_unit.h"

namespace gable::cpu::planes {

/// What a sum adds up.
struct Terms {
  int products, parts;
  std::int64_t steps;        // of a group: channels, or pairs of them
  std::int64_t strip_steps;  // with those that fill a whole block

  std::int64_t blocks() const { return ceil_div(steps, kBlockSteps); }
};

struct Panels {
  std::int64_t lanes, count;  // of a group; the last panel may have fewer lanes
};

/// Remainders of source rows and columns modulo the stride that some tap reads.
struct Phases {
  std::vector<std::int64_t> rows, columns;
};

struct Strip {
  std::int64_t rows, columns;  // of one image in one phase
  std::int64_t image, phase;   // positions of one image, of one phase of all images
  std::int64_t step, part;     // elements from one to the next
  std::int64_t floats;         // of all
};

/// Extents count outputs after the pool; the last work unit along an axis may have less.
struct WorkCut {
  std::int64_t images, rows, columns, panels;
  std::int64_t image_blocks, row_blocks, column_blocks, panel_blocks;
  bool weights_outermost;  // consecutive work units share weights, not input

  std::int64_t inputs() const { return image_blocks * row_blocks * column_blocks; }
};

struct Blocking {
  Conv2dProblem problem;  // with its pixels in a row where they may be
  Terms terms;
  Panels panels;
  bool by_lanes;  // tiles are pixels by lanes
  int vectors;    // of the widest tile; of lanes, if by_lanes
  bool in_place;
  Phases phases;
  Strip strip;
  std::vector<std::int64_t> taps;  // offsets
  WorkCut work;
  std::int64_t sums_floats;
  std::int64_t most_tiles, most_pieces;  // of a work unit

  std::int64_t count() const { return work.inputs() * problem.groups * work.panel_blocks; }
};

Blocking blocking_of(const Conv2dProblem& problem, int products, const TileUnit& unit, int threads);

/// Positions from the first output of a work unit to its last, in one run; and whether its tiles go row by row instead.
struct Outputs {
  std::int64_t images, rows, columns;  // of the convolution
};
std::int64_t flat_positions(const Blocking& blocking, const Outputs& outputs);
bool prefers_rows(const Blocking& blocking, const TileUnit& unit, const Outputs& outputs);

/// Vectors of products that the tiles of all work units compute for each step and tap, including padding and both
/// halves of whole tiles.
double vectors_of(const Blocking& blocking, const TileUnit& unit);

}  // namespace gable::cpu::planes
