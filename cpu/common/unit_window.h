// How an image's output is cut into units of work, and the part of the image that one unit computes: outputs after the
// pool, convolution results before it, and the input under them.
#pragma once

#include <gable/problem.h>

#include <algorithm>
#include <cstdint>

#include "cpu/common/tiling.h"

namespace gable::cpu {

/// Rows or pixels of convolution output under `outputs` rows or pixels of pooled output.
constexpr std::int64_t conv_extent(std::int64_t outputs, std::int64_t window, std::int64_t stride) {
  return (outputs - 1) * stride + window;
}

/// Where a unit lies in the output.
struct UnitPlace {
  std::int64_t first_image, group, out_tile, first_row, first_pixel;
};

/// Units are blocks of images × rows × pixels of the (pooled) output × an out tile of a group. Units that share input
/// follow one another, or with weights_once units that share weights.
struct UnitGrid {
  std::int64_t images, rows, pixels;  // of one unit; the last of each axis may have fewer
  std::int64_t image_blocks, row_blocks, pixel_blocks;
  std::int64_t groups, out_tiles;
  bool weights_once;

  constexpr std::int64_t count() const { return image_blocks * row_blocks * pixel_blocks * groups * out_tiles; }
  constexpr UnitPlace at(std::int64_t unit) const {
    const std::int64_t tiles = groups * out_tiles;
    const std::int64_t blocks = image_blocks * row_blocks * pixel_blocks;
    const std::int64_t tile = weights_once ? unit / blocks : unit % tiles;
    const std::int64_t block = weights_once ? unit % blocks : unit / tiles;
    return {block / pixel_blocks / row_blocks * images, tile / out_tiles, tile % out_tiles,
            block / pixel_blocks % row_blocks * rows, block % pixel_blocks * pixels};
  }
};

/// Units of at most rows × pixels of output and `images` images, all nearly equal, of out tiles of a group.
constexpr UnitGrid unit_grid(const Conv2dProblem& p, std::int64_t images, std::int64_t rows, std::int64_t pixels) {
  UnitGrid grid{.images = images,
                .rows = even_part(p.out_h(), rows),
                .pixels = even_part(p.out_w(), pixels),
                .image_blocks = ceil_div(p.n, images),
                .row_blocks = 1,
                .pixel_blocks = 1,
                .groups = 1,
                .out_tiles = 1,
                .weights_once = false};
  grid.row_blocks = ceil_div(p.out_h(), grid.rows);
  grid.pixel_blocks = ceil_div(p.out_w(), grid.pixels);
  return grid;
}

struct UnitWindow {
  std::int64_t first_row, rows, first_pixel, pixels;  // of the pooled output
  std::int64_t conv_rows, conv_pixels;                // before the pool
  std::int64_t x_row, x_column;                       // input under (first output, first tap); may lie outside
};

constexpr UnitWindow unit_window(const Conv2dProblem& p, const UnitGrid& grid, const UnitPlace& place) {
  const std::int64_t rows = std::min(grid.rows, p.out_h() - place.first_row);
  const std::int64_t pixels = std::min(grid.pixels, p.out_w() - place.first_pixel);
  return {.first_row = place.first_row,
          .rows = rows,
          .first_pixel = place.first_pixel,
          .pixels = pixels,
          .conv_rows = conv_extent(rows, p.pool.h, p.pool.stride_h),
          .conv_pixels = conv_extent(pixels, p.pool.w, p.pool.stride_w),
          .x_row = place.first_row * p.pool.stride_h * p.stride_h - p.pad_top,
          .x_column = place.first_pixel * p.pool.stride_w * p.stride_w - p.pad_left};
}

}  // namespace gable::cpu
