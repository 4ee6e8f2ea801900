// How FewChannelsPlan cuts a problem: the kind and size of the register tile, the strip that it reads, the units that
// threads take, and a thread's workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/common/tiling.h"
#include "cpu/few_channels/few_channels_kernels.h"

namespace gable::cpu {

struct FewTileShape {
  bool pixel_lanes;      // else lanes are output channels
  std::int64_t rows;     // of the convolution
  std::int64_t vectors;  // channel lanes: of a panel of weights
  /// Channel lanes with NHWC output: the tile stores y. Otherwise its results are converted and stored from the
  /// workspace when the unit is done.
  bool stores_output;
};

/// Extents in floats.
struct FewStrip {
  bool planes;                  // else a copy, of one phase
  std::int64_t phases;          // columns of one phase are stride_w apart in the image
  std::int64_t columns, pitch;  // of a phase: columns that are read, and the distance to the next phase
  std::int64_t row;             // from row to row
  std::int64_t pixel_step;      // from an output pixel's input to the next one's
  std::int64_t run_steps;       // steps whose inputs are neighbours in the strip
};

struct FewUnits {
  std::int64_t rows;        // output rows of a unit
  std::int64_t row_blocks;  // units of an image
};

/// A thread's part: the strip, a row of the image, results of one tile row or blocks for the store kernels, and the
/// unit's results. Offsets and sizes in floats; a part that is not used has size 0.
struct FewWorkspace {
  std::size_t row_offset, planes_offset, out_offset, floats;
  std::int64_t plane_pitch;  // pixel lanes: of a row of results
};

/// The outputs [begin, end) of a row that need no strip. Tiles that touch no column of padding read the image itself;
/// all others lie before `begin` or after `end`. Where nothing is read in place both are the row's length.
struct FewInPlace {
  std::int64_t begin, end;

  bool any() const { return begin < end; }
};

struct FewChannelsBlocking {
  FewTileShape tile;
  FewStrip strip;
  FewInPlace in_place;
  FewUnits units;
  FewWorkspace workspace;
};

FewChannelsBlocking few_channels_blocking(const Conv2dProblem& problem, const FewChannelsKernels& kernels, int threads);

/// Rows (and columns) of the convolution for each row of the output: 2 with the 2x2 max-pool, else 1.
constexpr std::int64_t pool_side(const Conv2dProblem& p) { return p.pool.none() ? 1 : 2; }

/// Pixels in a row of the convolution that the output needs.
constexpr std::int64_t conv_pixels(const Conv2dProblem& p) { return p.out_w() * pool_side(p); }

/// Taps times channels.
constexpr std::int64_t few_channels_steps(const Conv2dProblem& p) { return p.c * p.r * p.s; }

/// Whether a strip row holds the channels of a pixel next to each other, as an NHWC row does.
inline bool interleaves_channels(const Conv2dProblem& p, const FewStrip& strip) { return p.nhwc && !strip.planes; }

/// The tiles of a row of outputs. Those in [first_in_place, end_in_place) read the image itself.
struct FewRow {
  Tiles tiles;
  std::int64_t first_in_place, end_in_place;
};

/// The tiles of a row, for a panel of so many vectors of channel lanes.
FewRow few_row(const Conv2dProblem& problem, const FewTileShape& tile, const FewStrip& strip,
               const FewChannelsKernels& kernels, std::int64_t vectors);

/// The most pixels of a row that a tile of channel lanes takes.
std::int64_t widest_tile(const FewChannelsKernels& kernels, const FewTileShape& tile);

}  // namespace gable::cpu
