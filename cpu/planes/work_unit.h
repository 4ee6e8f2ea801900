// The loops over one work unit of the planes kernel: stage the input, then panel after panel, tile after tile.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <vector>

#include "cpu/common/target.h"
#include "cpu/planes/blocking.h"
#include "cpu/planes/kernels.h"
#include "cpu/planes/tile_unit.h"

namespace gable::cpu::planes {

/// What the work units of one run share.
struct Run {
  const Blocking& blocking;
  const TileUnit& unit;
  const Target& target;
  const void* x;
  const float* packed;
  const float* bias;  // or null
  void* y;
  bool non_temporal;                            // stores
  std::int64_t panel_elements, group_elements;  // of packed weights
};

/// A tile's positions in the run of all positions, and the pieces of output rows that are finished after it.
struct TileAt {
  std::int64_t start;
  int vectors;  // of positions; if by_lanes, pixels
  std::int64_t first_piece, pieces;
  std::int64_t sums;  // if by_lanes: the tile's first pixel among the pixels that are finished together
  std::int64_t row;   // if by_lanes: of the work unit's outputs
};

/// A thread's own memory. Nothing is allocated after reserve().
struct Scratch {
  float* strip = nullptr;
  float* sums = nullptr;
  std::vector<TileAt> tiles;
  std::vector<Piece> pieces;

  void reserve(const Blocking& blocking) {
    tiles.reserve(static_cast<std::size_t>(blocking.most_tiles));
    pieces.reserve(static_cast<std::size_t>(blocking.most_pieces));
  }
};

void compute_work_unit(const Run& run, std::int64_t index, Scratch& scratch);

}  // namespace gable::cpu::planes
