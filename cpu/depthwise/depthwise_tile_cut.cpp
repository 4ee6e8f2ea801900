// How an axis of a depthwise convolution's output is cut into register tiles (see depthwise_tile.h).
#include <algorithm>
#include <limits>

#include "cpu/depthwise/depthwise_tile.h"

namespace gable::cpu {

const Target* half_width_target(const Target& target) {
  if (target.name != "avx512") return nullptr;
  const Target* half = find_target("avx2");
  return half != nullptr && half->supported ? half : nullptr;
}

namespace {

/// The length of the next run if this many taps are left.
std::int64_t next_run(std::int64_t left) {
  if (left > kMaxRunTaps) return left == kMaxRunTaps + 1 ? 5 : kMaxRunTaps;
  return left == 4 || left == 6 ? left / 2 : left;
}

}  // namespace

// Output o, tap t reads o*stride + t*dilation - pad. With outputs first + i*output_step that is a constant plus
// (i*tile_stride + t) * position_step.
AxisCut::AxisCut(const WindowAxis& axis) : axis_(axis), output_step_(1), tile_stride_(1) {
  bool neighbours = true;
  if (axis.dilation % axis.stride == 0) {
    position_step_ = axis.dilation;
    output_step_ = axis.dilation / axis.stride;
  } else if (axis.stride == kMaxTileStride * axis.dilation) {
    position_step_ = axis.dilation;
    tile_stride_ = kMaxTileStride;
  } else {
    position_step_ = axis.stride;
    neighbours = false;
  }
  for (std::int64_t tap = 0; tap < axis.taps;) {
    tap += neighbours ? next_run(axis.taps - tap) : 1;
    run_ends_.push_back(tap);
  }
}

Positions AxisCut::inside(std::int64_t input, int outputs, std::int64_t run) const {
  const std::int64_t count = (outputs - 1) * tile_stride_ + run_taps(run);
  Positions bits = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t source = input + run_tap(run) * axis_.dilation + i * position_step_;
    if (source >= 0 && source < axis_.size) bits |= Positions{1} << i;
  }
  return bits;
}

std::int64_t AxisCut::like(const AxisTile& tile) const {
  const std::int64_t output = output_step_ * axis_.stride;
  const std::int64_t last = tile.input + (axis_.taps - 1) * axis_.dilation + (tile.outputs - 1) * output;
  if (tile.input >= axis_.size) return std::numeric_limits<std::int64_t>::max();
  if (last < 0) return (-1 - last) / (tile.outputs * output);
  return tile.input >= 0 && last < axis_.size ? (axis_.size - 1 - last) / (tile.outputs * output) : 0;
}

bool AxisCut::continues(const AxisTile& before, const AxisTile& tile, const std::vector<Positions>& positions) const {
  const auto first = positions.begin() + static_cast<std::ptrdiff_t>(before.positions_at);
  return before.outputs == tile.outputs &&
         std::equal(first, first + runs(), positions.begin() + static_cast<std::ptrdiff_t>(tile.positions_at));
}

std::vector<AxisTile> AxisCut::tiles(std::int64_t first, std::int64_t end, std::int64_t most,
                                     std::vector<Positions>& positions) const {
  std::vector<AxisTile> made;
  for (std::int64_t phase = first; phase < std::min(first + output_step_, end); ++phase) {
    const Tiles cut(ceil_div(end - phase, output_step_), most);
    for (std::int64_t i = 0; i < cut.count; ++i) {
      const std::int64_t output = phase + cut.begin(i) * output_step_;
      const AxisTile tile{output, static_cast<int>(cut.width(i)), axis_.first(output), positions.size(), 1};
      for (std::int64_t run = 0; run < runs(); ++run) positions.push_back(inside(tile.input, tile.outputs, run));
      if (i > 0 && continues(made.back(), tile, positions)) {
        ++made.back().count;
        positions.resize(tile.positions_at);
      } else {
        made.push_back(tile);
      }
      const std::int64_t end_of_width = i < cut.wide_tiles ? cut.wide_tiles : cut.count;
      const std::int64_t skipped = std::min(like(tile), end_of_width - 1 - i);
      made.back().count += skipped;
      i += skipped;
    }
  }
  return made;
}

std::int64_t AxisCut::most_positions(std::int64_t outputs, std::int64_t most) const {
  const std::int64_t count = Tiles(ceil_div(outputs, output_step_), most).count;
  // Tiles that reach over an edge of the image are made one by one. Between the edges, and for either width of a tile,
  // a few stand for all.
  const std::int64_t narrow = std::max<std::int64_t>(1, most / 2);
  const std::int64_t over_an_edge = (axis_.taps - 1) * axis_.dilation / (narrow * output_step_ * axis_.stride) + 2;
  return std::min(outputs, output_step_) * std::min(count, 2 * over_an_edge + 6) * runs();
}

}  // namespace gable::cpu
