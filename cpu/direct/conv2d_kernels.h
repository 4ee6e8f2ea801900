// The contract between the convolution's loop nest (conv2d_run.cpp, plain C++) and its register tiles (tile-inl.h,
// compiled once a target): what a tile reads, adds and stores, and a table of function pointers.
#pragma once

#include <gable/problem.h>

#include <cstdint>

#include "cpu/common/target.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_input.h"
#include "cpu/common/unit_output.h"

namespace gable::cpu {

constexpr int kMaxTilePixels = 28;
constexpr int kMaxImagePairPixels = 7;
constexpr int kMaxTileVectors = 2;
/// Near pixels: those of a strip of this many input lanes that leaves no column out, with stride 1. Tiles of one vector
/// address them by constants.
constexpr int kNearPitch = 16;
constexpr int kMaxNearPairPixels = kMaxTilePixels / 2;
/// The index of half a vector among numbers of vectors.
constexpr int kHalfTileVector = 0;

/// Packed weights of a tile's lanes: [in tile][kh][kw][in lane][vectors × lanes]. There are in_tiles tiles of in_lanes
/// input lanes; the last one has last_in_lanes.
struct WeightPanel {
  const float* weights;
  std::int64_t kernel_h, kernel_w;
  std::int64_t in_tiles, in_lanes, last_in_lanes;
};

/// So many tiles share the work of prefetching the weights that follow their panel.
constexpr std::int64_t kAheadShare = 4;

/// A tile's share of the weights that follow its panel, which it prefetches to L2: `floats` of them from `first` on.
/// Null where there is nothing to prefetch.
struct WeightsAhead {
  const float* first = nullptr;
  std::int64_t floats = 0;
  std::int64_t tile = 0;  // of those with this panel

  /// The next tile's share. All shares come twice, since a tile whose kernel rows read padding leaves out a part.
  void next_tile() {
    if (first == nullptr) return;
    if (++tile == 2 * kAheadShare) {
      first = nullptr;
    } else {
      first += tile % kAheadShare == 0 ? -(kAheadShare - 1) * floats : floats;
    }
  }
};

/// The taps that a tile multiplies. Kernel rows outside `rows` read padding and are skipped. Taps kw < left read
/// padding at the tile's first pixel, taps kw >= right at its last pixel; they skip that pixel, and with `several` also
/// its neighbours that read padding. No tap skips pixels at both ends.
struct TapWindow {
  TapRange rows;
  std::int64_t left, right;
  bool several = false;
  /// Pixel p reads column first_column + p * stride + kw * dilation of `columns`.
  std::int64_t first_column = 0, stride = 1, dilation = 1, columns = 0;
};

/// What a tile prefetches. Of its input: the first prefetch_taps taps of a kernel row read pixels that no earlier tap
/// reads; the row's last tap reads `halo` pixels beyond its first one's. With `output` also the lines that it will
/// store to y.
struct TilePrefetch {
  std::int64_t prefetch_taps, halo;
  bool output;
};

/// Accumulators in memory, `px` floats a pixel. With `load` the tile starts from them, with `store` it ends by writing
/// them. If `above` is not null it holds the accumulators of the convolution row above, and the tile stores the 2×2
/// max-pool of both rows.
struct PartialSums {
  float* sums;
  std::int64_t row, px;
  bool load, store;
  const float* above;
};

/// One register tile: 1 row × pixels × vectors of output lanes, or the same row of two images. x.row is then the
/// distance between the images, and so is y.row.
struct TileCall {
  InputTile x;
  WeightPanel weights;
  TapWindow taps;
  TilePrefetch prefetch;
  PartialSums partial;
  OutputTile y;
  WeightsAhead ahead{};
};
using TileFunction = void (*)(const TileCall&);

struct Conv2dKernels {
  int lanes;              // f32 lanes of a vector
  int least_lanes;        // of a panel: of half a vector where there are tiles of that, else of one
  int max_pixels;         // of a tile of one row and two vectors
  int max_narrow_pixels;  // of a tile of one row and a vector or half of one
  int max_image_pair_pixels;
  /// Indexed [vectors][pixels].
  TileFunction tile[kMaxTileVectors + 1][kMaxTilePixels + 1];
  TileFunction image_pair[kMaxTileVectors + 1][kMaxImagePairPixels + 1];
  /// Tiles of one vector and near pixels, indexed [pixels], and those of two rows; null where the target has none.
  TileFunction near_tile[kMaxTilePixels + 1];
  TileFunction near_pair[kMaxNearPairPixels + 1];

  /// Whether tiles of near pixels are worth a copy of the input: measured on cores with AMX (1.2 times as fast) and on
  /// cores that halve vectors (0.9).
  bool prefers_near_pixels;
};

/// Lanes of the next panel, with `lanes` output channels left: two vectors, one, or half of one, whichever needs the
/// least padding.
constexpr std::int64_t tile_panel_lanes(const Conv2dKernels& kernels, std::int64_t lanes) {
  const std::int64_t whole = kMaxTileVectors * kernels.lanes;
  if (lanes > whole - kernels.least_lanes) return whole;
  return lanes > kernels.lanes - kernels.least_lanes ? kernels.lanes : kernels.least_lanes;
}

const Conv2dKernels& conv2d_kernels(const Target& target);

}  // namespace gable::cpu
