// See unit_input.h.
#include "cpu/common/unit_input.h"

namespace gable::cpu {

PixelRange inner_tiles_in_place(const WindowAxis& axis, const UnitWindow& window, const Tiles& tiles,
                                const AxisMap& columns) {
  const std::int64_t reach = (axis.taps - 1) * axis.dilation;
  std::int64_t first = 0, last = tiles.count;
  while (first < last && window.x_column + tiles.begin(first) * axis.stride < 0) ++first;
  while (last > first && window.x_column + (tiles.begin(last) - 1) * axis.stride + reach >= axis.size) --last;
  if (first == last) return all_staged(window);
  const PixelRange inner{tiles.begin(first), tiles.begin(last)};
  const std::int64_t edge_columns = columns.positions(inner.begin) + columns.positions(window.conv_pixels - inner.end);
  return edge_columns <= columns.positions(window.conv_pixels) ? inner : all_staged(window);
}

void UnitInput::prepare(const void* x, std::int64_t channels, const StripKind& kind, float* strips) {
  if (in_place_.begin > 0) {
    left_ = stage(x, channels, kind, {0, in_place_.begin}, strips);
    strips += axes_.rows.positions(window_.conv_rows) * axes_.columns.positions(in_place_.begin) *
              round_up(channels, kind.in_lanes);
  }
  if (in_place_.any()) middle_ = image_tile(x, kind.in_lanes);
  if (in_place_.end < window_.conv_pixels) {
    right_ = stage(x, channels, kind, {in_place_.end, window_.conv_pixels}, strips);
  }
}

InputTile UnitInput::image_tile(const void* x, std::int64_t in_lanes) const {
  const float* first = static_cast<const float*>(x) + window_.x_row * strides_.row + window_.x_column * strides_.pixel;
  return {first,
          p_.stride_h * strides_.row,
          p_.stride_w * strides_.pixel,
          p_.dilation_h * strides_.row,
          p_.dilation_w * strides_.pixel,
          in_lanes,
          1};
}

InputTile UnitInput::stage(const void* x, std::int64_t channels, const StripKind& kind, const PixelRange& pixels,
                           float* strip) const {
  const std::int64_t columns = axes_.columns.positions(pixels.end - pixels.begin);
  kind.stage({.image = {x, strides_, p_.h, p_.w},
              .axes = axes_,
              .row_positions = axes_.rows.positions(window_.conv_rows),
              .column_positions = columns,
              .first_row = window_.x_row,
              .first_column = window_.x_column + pixels.begin * p_.stride_w,
              .channels = channels,
              .in_lanes = kind.in_lanes,
              .strip = strip});
  const std::int64_t pixel = kind.pixel_major ? kind.in_lanes : 1;
  const std::int64_t row = columns * (kind.pixel_major ? round_up(channels, kind.in_lanes) : channels);
  return {strip,
          axes_.rows.output_step * row,
          axes_.columns.output_step * pixel,
          axes_.rows.tap_step * row,
          axes_.columns.tap_step * pixel,
          columns * kind.in_lanes,
          kind.pixel_major ? 1 : columns};
}

}  // namespace gable::cpu
