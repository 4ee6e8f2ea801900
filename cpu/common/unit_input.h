// The input of a unit of work, for kernels whose register tiles read f32: each tile reads the image in place or a
// staged strip (strips.h). If the image is f32 NHWC, only tiles that touch the padding need a strip: a unit then has
// one strip for its left edge and one for its right edge.
#pragma once

#include <gable/problem.h>

#include <cstdint>

#include "cpu/common/strips.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_window.h"

namespace gable::cpu {

/// Where a register tile reads. Element (row, pixel, kh, kw, in tile, lane) is
/// x[row*this->row + pixel*px + kh*this->kh + kw*this->kw + in tile*in_tile + lane*this->lane].
struct InputTile {
  const float* x;
  std::int64_t row, px, kh, kw, in_tile, lane;
};

/// The pixels [begin, end) of a window.
struct PixelRange {
  std::int64_t begin, end;

  constexpr bool any() const { return begin < end; }
  constexpr bool all(std::int64_t pixels) const { return begin == 0 && end == pixels; }
};
constexpr PixelRange all_in_place(const UnitWindow& window) { return {0, window.conv_pixels}; }
constexpr PixelRange all_staged(const UnitWindow& window) { return {window.conv_pixels, window.conv_pixels}; }

/// The pixels of the tiles that touch no column of padding. They are read in place, the pixels before and after them in
/// strips. Empty if strips for the edges would need more columns than one strip for all pixels.
PixelRange inner_tiles_in_place(const WindowAxis& axis, const UnitWindow& window, const Tiles& tiles,
                                const AxisMap& columns);

/// How a strip is made and in which order its channels lie.
struct StripKind {
  StageFunction stage;
  std::int64_t in_lanes;
  bool pixel_major;  // lanes of a pixel are neighbours; else columns of a channel are
};

class UnitInput {
 public:
  UnitInput(const Conv2dProblem& problem, const UnitWindow& window, const StripAxes& axes, PixelRange in_place)
      : p_(problem), window_(window), axes_(axes), in_place_(in_place), strides_(x_strides(problem)) {}

  /// Prepares `channels` channels for reading; x is the first of them in the unit's first image. Stages the edges into
  /// `strips`.
  void prepare(const void* x, std::int64_t channels, const StripKind& kind, float* strips);

  bool in_place(std::int64_t pixel) const { return pixel >= in_place_.begin && pixel < in_place_.end; }
  bool stages() const { return !in_place_.all(window_.conv_pixels); }
  bool reads_in_place() const { return in_place_.any(); }

  /// The input of a tile that begins at (row, pixel) of the window.
  InputTile at(std::int64_t row, std::int64_t pixel) const {
    const bool right = pixel >= in_place_.end;
    InputTile tile = pixel < in_place_.begin ? left_ : right ? right_ : middle_;
    tile.x += row * tile.row + (pixel - (right ? in_place_.end : 0)) * tile.px;
    return tile;
  }

 private:
  InputTile image_tile(const void* x, std::int64_t in_lanes) const;
  /// Stages the input of the pixels [begin, end).
  InputTile stage(const void* x, std::int64_t channels, const StripKind& kind, const PixelRange& pixels,
                  float* strip) const;

  const Conv2dProblem& p_;
  const UnitWindow& window_;
  const StripAxes& axes_;
  PixelRange in_place_;
  Strides strides_;
  InputTile left_{}, middle_{}, right_{};  // right_ begins at the first pixel of its strip
};

}  // namespace gable::cpu
