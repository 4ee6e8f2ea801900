// The register tile of both depthwise kernels, compiled once a target, and how an axis of the output is cut into tiles.
// A tile is up to eight outputs along one axis of the image x one vector of lanes. In NHWC the axis is a row and the
// lanes are channels; in NCHW the axis is a column and the lanes are neighbouring pixels of a row. The kernel's taps
// along the axis form runs of 1, 2, 3, 5 or 7: a run's weights stay in registers, and each input vector that is loaded
// serves all outputs of the tile that read it. Taps of the other axis are further runs.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <vector>

#include "cpu/common/target.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {

constexpr int kMaxTileOutputs = 8;
constexpr int kMaxRunTaps = 7;
constexpr int kMaxTileStride = 2;

/// A row tile computes two rows of outputs of a 3x3 window at once: they share the input rows between them.
constexpr int kRowTileRows = 2;
constexpr int kRowTileTaps = 3;
/// The positions of a tile's input that a run may read, one bit for each, the first in bit 0. The others are padding
/// and are skipped.
using Positions = std::uint32_t;

/// 1, 2, 3, 5 or 7 taps that are neighbours along the tile's axis.
struct TapRun {
  std::int64_t x;        // elements from TileInput::first to what the run's first tap of the first output reads
  std::int64_t weights;  // floats from the weights to those of its first tap
  std::int32_t taps;
  std::int32_t positions;  // which entry of TileTaps::positions
};

/// The taps of a tile. Row tiles take all nine taps instead; of these they read the first entry of `positions`.
struct TileTaps {
  const TapRun* runs;
  std::int64_t run_count;
  const Positions* positions;  // of each run
};

/// Steps are in elements.
struct TileInput {
  const void* first;
  std::int64_t step;            // between two positions
  std::int64_t row;             // between two rows, for row tiles
  std::int64_t prefetch_bytes;  // from the last run's input to lines that a later call reads; 0: no prefetch
};

struct TileOutput {
  void* first;
  std::int64_t step;  // between two outputs
  std::int64_t row;   // between two rows, for row tiles
  float least;        // outputs below become this; minus infinity: none
  int part;           // lanes that a row tile stores of a vector that reaches into the next pixel; 0: all
  bool non_temporal;  // stores of whole aligned vectors of f32
};

/// Floats of weights or bias, from those of the first vector; step 0: all vectors share them.
struct TileParameters {
  const float* first;
  std::int64_t step;
};

/// Elements from the first vector to the last one, which may overlap the one before it.
struct LastVector {
  std::int64_t x, y, bias;
};
/// Vectors of lanes, one after another.
struct TileVectors {
  std::int64_t count;
  bool paired;      // of bf16: each two vectors are the even and the odd ones of 2 * lanes channels
  LastVector last;  // where vectors are not paired
};

struct DepthwiseTileCall {
  TileTaps taps;
  TileInput x;
  TileParameters weights, bias;
  TileOutput y;
  TileVectors vectors;
  std::int64_t tiles;  // computed one after another, as far apart as they are wide
};
using DepthwiseTileFunction = void (*)(const DepthwiseTileCall&);

struct DepthwiseTiles {
  int lanes;
  /// Indexed [DType of x and y][stride of the outputs in positions - 1][outputs - 1].
  DepthwiseTileFunction tiles[3][kMaxTileStride][kMaxTileOutputs];
  /// Tiles of f32 input, indexed likewise by the DType of y.
  DepthwiseTileFunction narrowing[3][kMaxTileStride][kMaxTileOutputs];
  /// Row tiles, indexed likewise; null: none. Instead of runs they take all nine taps, none of them in rows of padding.
  DepthwiseTileFunction row_tiles[3][kMaxTileStride][kMaxTileOutputs];
  int long_row_outputs;  // of a row tile in a long row; 0: there are no row tiles
  bool pairs;            // tiles of bf16 take pairs of vectors
  bool parts;            // row tiles store parts of vectors

  DepthwiseTileFunction row_tile(DType dtype, std::int64_t stride, std::int64_t outputs) const {
    return outputs == 0 ? nullptr : row_tiles[static_cast<int>(dtype)][stride - 1][outputs - 1];
  }
};
const DepthwiseTiles& depthwise_tiles(const Target& target);

/// The target whose vectors have half the lanes, or null. Its tiles compute the channels that do not fill a whole
/// vector.
const Target* half_width_target(const Target& target);

/// Some outputs along the axis: first, first + output_step, ..., and such tiles after it.
struct AxisTile {
  std::int64_t first;
  int outputs;
  std::int64_t input;        // coordinate that the first tap of the first output reads; may lie outside
  std::size_t positions_at;  // entries in the list of positions, one a run of the axis
  std::int64_t count;        // tiles in a row that read the same positions, this one first
};

/// Limits of a plan's tables: positions of the different tiles of a row, blocks of rows, blocks of channels. A query
/// may build these tables too.
inline constexpr std::int64_t kMaxTablePieces = 1 << 20;

/// How one axis of the output is cut. Positions are input coordinates `position_step` apart. If neither stride nor
/// dilation divides the other, or they differ too much, each tap is its own run.
class AxisCut {
 public:
  explicit AxisCut(const WindowAxis& axis);

  std::int64_t position_step() const { return position_step_; }
  std::int64_t output_step() const { return output_step_; }
  int tile_stride() const { return tile_stride_; }

  std::int64_t runs() const { return static_cast<std::int64_t>(run_ends_.size()); }
  std::int64_t run_tap(std::int64_t run) const { return run == 0 ? 0 : run_ends_[static_cast<std::size_t>(run - 1)]; }
  std::int64_t run_taps(std::int64_t run) const { return run_ends_[static_cast<std::size_t>(run)] - run_tap(run); }

  /// Tiles of the outputs [first, end) of at most so many outputs, and their positions.
  std::vector<AxisTile> tiles(std::int64_t first, std::int64_t end, std::int64_t most,
                              std::vector<Positions>& positions) const;
  /// At least as many positions as tiles() makes for so many outputs, counted without making them.
  std::int64_t most_positions(std::int64_t outputs, std::int64_t most) const;

 private:
  Positions inside(std::int64_t input, int outputs, std::int64_t run) const;
  /// How many of the following tiles have the same positions as this one, because all their inputs lie inside the image
  /// or all lie in the padding on one side of it. There may be more such tiles.
  std::int64_t like(const AxisTile& tile) const;
  bool continues(const AxisTile& before, const AxisTile& tile, const std::vector<Positions>& positions) const;

  WindowAxis axis_;
  std::int64_t position_step_, output_step_;
  int tile_stride_;
  std::vector<std::int64_t> run_ends_;  // the tap after each run
};

}  // namespace gable::cpu
