// How few_channels_mma cuts a convolution: the tile of a warp, the input tile of a block and its units in shared
// memory, how both are loaded and stored, and the time by a model.
#pragma once

#include <span>

#include "cuda/common/halo_tile.h"

namespace gable::cuda::few_channels_mma {

struct Variant {
  DType type;
  int tiles;  // of 8 output channels
  int rows;   // products of a warp, each of 8 positions
  int threads;
  void (*kernel)(HaloTile);
};

/// All that are compiled for the type, by the output channels of a block, fewest first.
std::span<const Variant> variants(DType type);

constexpr int kUnit = 8;         // bytes
constexpr int kUnitsOfStep = 4;  // one a thread of the quad

constexpr int padded_channels(int channels) { return channels <= 4 ? 4 : 8; }

/// tf32 lies in 4 bytes.
constexpr int pixel_bytes(const HaloTile& t) {
  return padded_channels(t.extents.c) * (t.format.type == DType::f32 ? 4 : 2);
}
constexpr int units_of(const HaloTile& t) { return t.window.kernel_h * t.window.kernel_w * pixel_bytes(t) / kUnit; }
constexpr int steps_of(const HaloTile& t) { return (units_of(t) + kUnitsOfStep - 1) / kUnitsOfStep; }
/// Bytes of B for one step and `tiles` tiles: two registers a lane and tile.
constexpr int step_bytes(int tiles) { return 32 * tiles * 8; }

/// How two neighbouring pixels are read from x. In words and vectors, the first one lies in an even column of an image
/// of even width, so that both are inside it or outside.
enum class PairOrder {
  planes,    // nchw: a word of two elements in each channel's plane
  three,     // nhwc of 3 channels: three such words
  whole,     // nhwc of as many channels as a pixel has in shared memory: whole vectors
  elements,  // anything else
};

/// How pixels are loaded in pairs. In nhwc, words and vectors only work with a single group.
constexpr PairOrder pair_order(const HaloTile& t) {
  if (t.extents.w % 2 != 0) return PairOrder::elements;
  if (!t.format.nhwc) return PairOrder::planes;
  if (t.extents.groups > 1) return PairOrder::elements;
  return t.extents.c == 3                              ? PairOrder::three
         : t.extents.c == padded_channels(t.extents.c) ? PairOrder::whole
                                                       : PairOrder::elements;
}

/// Channels of the widest store of a thread's `count`.
constexpr int widest_store(int count, int element) { return count < 16 / element ? count : 16 / element; }

/// Channels of a store in nhwc: the widest that divides those of a group, and so all.
constexpr int store_width(int group_channels, int widest) {
  if (group_channels % widest == 0) return widest;
  return widest > 4 && group_channels % 4 == 0 ? 4 : group_channels % 2 == 0 ? 2 : 1;
}

struct Choice {
  const Variant* variant = nullptr;
  TileChoice tile;
};

/// The variant of most channels, or one of fewer that is estimated to be clearly cheaper: few pixels are cut by their
/// channels too, so that more multiprocessors work.
Choice choose(const Conv2dProblem& problem, const cudaDeviceProp& device);

/// Estimated, of a run.
double seconds_of(const Choice& choice);

/// Bytes of shared memory of the smallest tile: one row pair, the fewest output channels.
std::size_t least_shared_bytes(const Conv2dProblem& problem);

}  // namespace gable::cuda::few_channels_mma
