// How few_channels_mma cuts a convolution: the tile of a warp, the input tile of a block and its units in shared
// memory, how both are loaded and stored, and the time by a model.
#pragma once

#include <span>

#include "cuda/common/coverage.h"
#include "cuda/common/halo_tile.h"

namespace gable::cuda::few_channels_mma {

struct Variant {
  DType type;
  int tiles;  // of 8 output channels
  int rows;   // products of a warp, each of 8 positions
  int threads;
  Path path;
  void (*kernel)(HaloTile);
};

/// All that are compiled for the type, by the output channels of a block, fewest first: for pixels of up to 8 channels,
/// or of more.
std::span<const Variant> variants(DType type, bool wide);
std::span<const Variant> wide_variants(DType type);

constexpr std::int64_t kMaxChannels = 32;  // of the input, a group
constexpr int kUnitsOfGroup = 4;           // one a thread of the quad

/// Pixels of more than 8 channels lie in units of 16 bytes, each of which is two products' operands: quads that read 64
/// neighbouring bytes meet in no bank, whatever the pixel. Columns then lie by their phase, which is their number
/// modulo the stride.
constexpr bool is_wide(const HaloTile& t) { return t.extents.c > 8; }
constexpr int unit_bytes(const HaloTile& t) { return is_wide(t) ? 16 : 8; }
constexpr int element_bytes(const HaloTile& t) { return t.format.type == DType::f32 ? 4 : 2; }  // tf32 lies in 4 bytes

constexpr int padded_channels(int channels, int of_unit) {
  return channels <= 4 ? 4 : channels <= 8 ? 8 : (channels + of_unit - 1) / of_unit * of_unit;
}
constexpr int pixel_bytes(const HaloTile& t) {
  return padded_channels(t.extents.c, unit_bytes(t) / element_bytes(t)) * element_bytes(t);
}
constexpr int units_of_pixel(const HaloTile& t) { return pixel_bytes(t) / unit_bytes(t); }
constexpr int units_of(const HaloTile& t) { return t.window.kernel_h * t.window.kernel_w * units_of_pixel(t); }
/// Units that a quad reads at once.
constexpr int unit_groups_of(const HaloTile& t) { return (units_of(t) + kUnitsOfGroup - 1) / kUnitsOfGroup; }
/// Products: each takes 8 bytes of a unit.
constexpr int steps_of(const HaloTile& t) { return unit_groups_of(t) * (unit_bytes(t) / 8); }
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
  return t.extents.c == 3                       ? PairOrder::three
         : t.extents.c == 4 || t.extents.c == 8 ? PairOrder::whole
                                                : PairOrder::elements;
}

/// Bytes of a load of wide pixels: the widest that divides a group's channels, and so all.
constexpr int unit_access(const HaloTile& t) {
  const int bytes = t.extents.c * element_bytes(t), widest = bytes & -bytes;
  return widest < 16 ? widest : 16;
}

/// Where a column of the input tile lies in its row of shared memory, in bytes.
constexpr int column_place(const HaloTile& t, int column) {
  if (!is_wide(t)) return column * pixel_bytes(t);
  const int along = column / t.window.stride_w;
  return (column - along * t.window.stride_w) * t.shared.plane + along * pixel_bytes(t);
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
