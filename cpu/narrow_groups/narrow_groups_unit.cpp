// See narrow_groups_unit.h.
#include "cpu/narrow_groups/narrow_groups_unit.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "cpu/common/strides.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

class Unit {
 public:
  Unit(const NarrowGroupsRun& run, std::int64_t index, float* strip)
      : r_(run),
        p_(run.problem),
        b_(run.blocking),
        place_(run.blocking.units.at(index)),
        window_(unit_window(run.problem, run.blocking.units, place_)),
        pixel_vectors_(narrow_groups_pixel_vectors(p_, r_.kernels)),
        tap_steps_(r_.kernels.quads ? narrow_groups_steps(p_, r_.kernels) / kQuad : pixel_vectors_),
        block_lanes_(b_.block_groups * p_.group_k()),
        weights_row_(p_.s * narrow_groups_steps(p_, r_.kernels) * (r_.kernels.quads ? block_lanes_ : r_.kernels.lanes)),
        strip_(strip),
        next_row_(std::numeric_limits<std::int64_t>::min()) {}

  void compute() {
    const Tiles tiles(window_.pixels, r_.kernels.max_pixels);
    for (std::int64_t row = 0; row < window_.rows; ++row) {
      const std::int64_t first = window_.x_row + row * p_.stride_h;
      const TapRange taps = taps_inside(first, p_.h, p_.dilation_h, p_.r);
      // Starts at the first row inside the image, even if no tap of this output row reads it: a later output row may
      // read it.
      spread_rows(std::max<std::int64_t>(first, 0), first + (taps.end - 1) * p_.dilation_h + 1);
      for (std::int64_t tile = 0; tile < tiles.count; ++tile) {
        compute_tile({row, tiles.begin(tile), tiles.width(tile)}, first, taps);
      }
    }
  }

 private:
  struct TilePlace {
    std::int64_t row, pixel, pixels;  // of the window
  };

  std::int64_t lanes() const { return r_.kernels.lanes; }
  /// Elements of the image in one of the strip.
  std::int64_t of_element() const { return r_.kernels.pairs ? 2 : 1; }

  float* ring_row(std::int64_t row) const { return strip_ + row % b_.span * b_.strip_row; }

  /// The image rows [begin, end) that are not yet in the ring.
  void spread_rows(std::int64_t begin, std::int64_t end) {
    const Strides x = x_strides(p_);
    const std::int64_t first_channel = place_.group * b_.block_groups * p_.group_c();
    for (std::int64_t row = std::max(begin, next_row_); row < end; ++row) {
      r_.kernels.spread[static_cast<std::size_t>(r_.kernels.pairs ? DType::f32 : p_.dtype)](
          {.x = advance(r_.x, p_.dtype, place_.first_image * x.image + row * x.row + first_channel),
           .x_pixel = x.pixel / of_element(),
           .width = p_.w,
           .first_column = window_.x_column,
           .columns = (window_.pixels - 1) * p_.stride_w + (p_.s - 1) * p_.dilation_w + 1,
           .steps = pixel_vectors_,
           .channels = std::min(b_.block_groups * p_.group_c(), p_.c - first_channel) / of_element(),
           .next_row = row + 1 < p_.h ? x.row / of_element() : 0,
           .source = r_.source,
           .strip = ring_row(row)});
    }
    next_row_ = std::max(end, next_row_);
  }

  /// `first`: the image row under the tile's first tap.
  void compute_tile(const TilePlace& tile, std::int64_t first, const TapRange& taps) const {
    const std::int64_t pixel = pixel_vectors_ * lanes();
    const float* rows[kMaxNarrowGroupsRows];
    for (std::int64_t kh = taps.begin; kh < taps.end; ++kh) {
      rows[kh] = ring_row(first + kh * p_.dilation_h) + tile.pixel * p_.stride_w * pixel;
    }
    const bool quads = r_.kernels.quads, one_run = p_.dilation_w == 1 && !quads;
    const Strides y = y_strides(p_);
    const std::int64_t first_lane = place_.group * block_lanes_;
    const int valid = static_cast<int>(std::min(block_lanes_, p_.k - first_lane));
    void* const y_tile = advance(r_.y, p_.dtype,
                                 place_.first_image * y.image + (place_.first_row + tile.row) * y.row +
                                     (place_.first_pixel + tile.pixel) * y.pixel + first_lane);
    r_.kernels.tile[tile.pixels](
        {.rows = rows,
         .first_row = taps.begin,
         .end_row = taps.end,
         .x_pixel = p_.stride_w * pixel,
         .x_run = p_.dilation_w * pixel,
         .runs = one_run ? 1 : p_.s,
         .steps = one_run ? p_.s * tap_steps_ : tap_steps_,
         .weights = r_.packed + (place_.group * p_.r + taps.begin) * weights_row_,
         .weights_row = weights_row_,
         .bias = r_.bias + place_.group * r_.block_bias,
         .y = y_tile,
         .y_type = p_.dtype,
         .y_pixel = y.pixel,
         .valid = valid,
         .least = p_.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity()});
  }

  const NarrowGroupsRun& r_;
  const Conv2dProblem& p_;
  const NarrowGroupsBlocking& b_;
  UnitPlace place_;
  UnitWindow window_;
  // Computed once a unit, since they take divisions. tap_steps_: of a tap, in a tile's run; weights_row_: floats.
  std::int64_t pixel_vectors_, tap_steps_, block_lanes_, weights_row_;
  float* strip_;
  std::int64_t next_row_;  // of the image; rows before it were spread
};

}  // namespace

void compute_narrow_groups_unit(const NarrowGroupsRun& run, std::int64_t index, float* strip) {
  Unit(run, index, strip).compute();
}

}  // namespace gable::cpu
