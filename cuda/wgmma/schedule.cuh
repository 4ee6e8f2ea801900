// Which work a block of the wgmma kernel does: its items, its share of their reduction, and where an item's tile lies
// in the input and the output. Producer and consumers compute this independently and agree.
#pragma once

#include "cuda/wgmma/arguments.h"

namespace gable::cuda::wgmma {

struct Tile {
  int x, y, n;  // the first output pixel
  int channel_tile;
};

/// Divides by multiplication where possible: an integer division takes about a hundred cycles, and the first loads wait
/// for several divisions.
__device__ inline int divide(int a, const Divisor& d) {
  if (d.value == 1) return a;
  return d.reciprocal != 0 ? static_cast<int>(__umulhi(static_cast<unsigned>(a), d.reciprocal))
                           : a / static_cast<int>(d.value);
}
/// Binary logarithm of a power of two.
__device__ inline int log_of(int power) { return __popc(power - 1); }

__device__ inline Tile tile_of(const WgmmaArguments& a, int item) {
  int t, channel_tile;
  if (a.tiles.pixels_first) {
    channel_tile = divide(item, a.tiles.by_pixel_tiles);
    t = item - channel_tile * static_cast<int>(a.tiles.by_pixel_tiles.value);
  } else {
    t = divide(item, a.tiles.by_channel_tiles);
    channel_tile = item - t * static_cast<int>(a.tiles.by_channel_tiles.value);
  }
  const int row = divide(t, a.tiles.by_tiles_x), image = divide(row, a.tiles.by_tiles_y);
  const int x = t - row * static_cast<int>(a.tiles.by_tiles_x.value),
            y = row - image * static_cast<int>(a.tiles.by_tiles_y.value);
  return {x * a.tiles.width, y * a.tiles.height, image * a.tiles.images, channel_tile};
}

/// The items of this block. In the round that starts at item i, consumer c works on item i + c * partner. The blocks of
/// a cluster work on the same items, each on its share of the reduction.
struct Rounds {
  int begin, end, step, partner;
};
__device__ inline Rounds rounds_of(const WgmmaArguments& a) {
  const int workers = static_cast<int>(gridDim.x) >> log_of(a.reduction.split);
  const int worker = static_cast<int>(blockIdx.x) >> log_of(a.reduction.split);
  if (a.reduction.schedule != WgmmaSchedule::own_tiles) return {worker, a.tiles.items, workers, 0};
  return {worker, a.tiles.items, kConsumers * workers, workers};
}
__device__ inline int rank_of(const WgmmaArguments& a) {
  return static_cast<int>(blockIdx.x) & (a.reduction.split - 1);
}

__device__ inline const WgmmaShare& share_of(const WgmmaArguments& a) { return a.reduction.shares[rank_of(a)]; }

/// Which 64 output channels a consumer computes.
__device__ inline int channel_slice(const WgmmaArguments& a, const Tile& tile, int consumer) {
  return a.reduction.schedule == WgmmaSchedule::one_tile ? tile.channel_tile * kConsumers + consumer
                                                         : tile.channel_tile;
}

/// A slice's first output channel: WgmmaSlices::first_output().
__device__ inline int first_output(const WgmmaArguments& a, int slice) {
  const WgmmaChannels& c = a.channels;
  if (!c.grouped) return slice * kWgmmaChannels;
  const int unit = divide(slice, c.by_parts), part = slice - unit * static_cast<int>(c.by_parts.value);
  return min(unit * c.unit + min(part * kWgmmaChannels, c.unit - c.width), c.last);
}

/// The first input channel of a tile: WgmmaSlices::first_input().
__device__ inline int first_input(const WgmmaArguments& a, int slice) {
  if (!a.channels.grouped) return 0;
  return divide(first_output(a, slice), a.channels.by_group_k) * a.channels.group_c & a.channels.input_mask;
}

/// Where a tile's first filter starts in the input.
__device__ inline Tile origin_of(const WgmmaArguments& a, const Tile& tile) {
  if (!a.tiles.by_tap) return {tile.x * a.tiles.stride_w, tile.y * a.tiles.stride_h, tile.n, 0};
  const int y = divide(tile.x, a.tiles.by_out_w),
            image = divide(y, a.tiles.by_out_h);  // the batch is one line of pixels, a tile a piece of it
  const int column = tile.x - y * static_cast<int>(a.tiles.by_out_w.value);
  const int row = y - image * static_cast<int>(a.tiles.by_out_h.value);
  return {a.tiles.first_x + column * a.tiles.stride_w, a.tiles.first_y + row * a.tiles.stride_h, image, 0};
}

}  // namespace gable::cuda::wgmma
