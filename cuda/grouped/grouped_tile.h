// How the grouped kernel cuts a convolution: a block takes a slab of groups that lie next to each other, and a tile of
// pixels. Plain host arithmetic, no CUDA call: testable without a GPU.
#pragma once

#include <cstdint>
#include <optional>

#include <gable/problem.h>

namespace gable::cuda {

inline constexpr int kGroupedPixels = 8;         ///< neighbouring output pixels of a thread
inline constexpr int kGroupedMostThreads = 256;  ///< of a block

/// Channels of a block and its threads.
struct GroupedSlab {
  int out = 8;                     ///< output channels of a thread, 4 or 8
  int padded_c = 4, padded_k = 8;  ///< of a group, multiples of 4 and `out`
  int groups = 1;                  ///< of a slab
  int group_lanes = 1, parts = 1;  ///< threads that share a group's pixels; blocks that share its output channels
  int slabs = 1;

  constexpr int lanes() const { return groups * group_lanes; }
};

/// Output pixels of a block: `strips` of kGroupedPixels in a row, `rows` of them, of `images`. Several images only if
/// the tile has all their pixels.
struct GroupedTile {
  int strips = 1, rows = 1, images = 1;
  int in_rows = 1, in_columns = 1;  ///< of the input of one image
  int pitch = 4;                    ///< floats from row to row in shared memory
  int tiles_x = 1, tiles_y = 1, tiles_n = 1;
};

struct GroupedCut {
  GroupedSlab slab;
  GroupedTile tile;
  int threads = 32;
  int weight_floats = 0, input_floats = 0;  ///< of shared memory
  std::int64_t blocks = 1;
  double cycles = 0;  ///< estimated time

  int shared_bytes() const { return 4 * (weight_floats + input_floats); }
};

/// The cut of the least estimated time whose tile fits `shared_bytes`. Empty if none does.
std::optional<GroupedCut> find_grouped_cut(const Conv2dProblem& problem, int multiprocessors, int shared_bytes);

}  // namespace gable::cuda
