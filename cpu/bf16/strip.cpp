// See strip.h.
#include "cpu/bf16/strip.h"

#include <algorithm>
#include <numeric>

#include "cpu/bf16/axis.h"
#include "cpu/common/cache.h"

namespace gable::cpu::bf16 {
namespace {

constexpr std::int64_t kSlackPositions = 64;  // that a tile may read past the strip's end

/// Distinct ones, in the order of the taps, of taps `dilation` apart; they repeat after stride / gcd(stride, dilation)
/// taps.
std::vector<std::int64_t> phases_of_axis(std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(std::min(taps, stride / std::gcd(stride, dilation))));
  for (std::size_t tap = 0; tap < found.size(); ++tap) found[tap] = static_cast<std::int64_t>(tap) * dilation % stride;
  return found;
}

/// `positions` plus a few of padding, so that the same pixel of two blocks lies in different sets of L1.
std::int64_t in_other_sets(std::int64_t positions) {
  constexpr std::int64_t kWay = kL1WayBytes / (kChannels * static_cast<std::int64_t>(sizeof(std::uint16_t)));
  return positions + (kWay + kWay / 2 - positions % kWay) % kWay;
}

/// The distinct phases of rows of taps that hold several kernel rows each, in the order of the taps.
std::vector<std::int64_t> phases_of_gathered_rows(const Conv2dProblem& p, const Terms& terms) {
  std::vector<std::int64_t> found;
  for (std::int64_t row = 0; row < terms.tap_rows; ++row) {
    const std::int64_t phase = terms.kernel_row(row) * p.dilation_h % p.stride_h;
    if (std::find(found.begin(), found.end(), phase) == found.end()) found.push_back(phase);
  }
  return found;
}

/// The place of a tap's phase among the axis' phases.
std::int64_t index_of(const std::vector<std::int64_t>& phases, std::int64_t tap) {
  return tap % static_cast<std::int64_t>(phases.size());
}
/// The same of a gathered row, by its coordinate.
std::int64_t index_of_gathered_row(const std::vector<std::int64_t>& phases, std::int64_t row, std::int64_t stride) {
  return std::find(phases.begin(), phases.end(), row % stride) - phases.begin();
}

}  // namespace

Phases phases_of(const Conv2dProblem& p, const Terms& terms) {
  if (terms.gathers()) return {phases_of_gathered_rows(p, terms), {0}};
  return {phases_of_axis(terms.tap_rows, p.stride_h, p.dilation_h),
          phases_of_axis(terms.tap_columns, p.stride_w, p.dilation_w)};
}

StripShape StripLayout::shape(std::int64_t rows, std::int64_t columns) const {
  const Conv2dProblem& p = problem;
  StripShape shape{};
  shape.position = terms.fold > 1 ? terms.pixel * p.stride_w : terms.position;
  std::int64_t positions;
  if (path == InputPath::by_images) {
    shape.rows = source_size(row_axis(p, geometry), rows);
    shape.columns = source_size(column_axis(p, geometry), columns);
    positions = in_other_sets(shape.rows * shape.columns * kHalfPositions);
  } else {
    shape.rows = rows + terms.last_tap_row * p.dilation_h / p.stride_h;
    shape.columns = terms.fold > 1 ? columns - 1 + ceil_div(terms.fold, p.stride_w)
                                   : columns + (terms.tap_columns - 1) * p.dilation_w / p.stride_w;
    positions = phases.count() * shape.rows * shape.columns;
  }
  const bool folded = terms.fold > 1;
  const bool dense = folded || terms.gathers();  // the channels of all blocks lie together
  shape.block = folded ? terms.block_channels : dense ? kChannels : positions * shape.position;
  shape.part = dense ? positions * shape.position : terms.blocks * shape.block;
  return shape;
}

std::int64_t StripLayout::tap_offset(const StripShape& shape, std::int64_t row, std::int64_t column) const {
  if (path == InputPath::by_images) return (row * shape.columns + column) * kHalfPositions * kChannels;
  if (path == InputPath::in_image || path == InputPath::in_rows) return (row * problem.w + column) * problem.c;
  const std::int64_t row_phase = terms.gathers() ? index_of_gathered_row(phases.rows, row, problem.stride_h)
                                                 : index_of(phases.rows, row / problem.dilation_h);
  const std::int64_t phase = row_phase * static_cast<std::int64_t>(phases.columns.size()) +
                             index_of(phases.columns, column / problem.dilation_w);
  const std::int64_t strip_row = phase * shape.rows + row / problem.stride_h;
  return (strip_row * shape.columns + column / problem.stride_w) * shape.position;
}

std::vector<std::int64_t> StripLayout::tap_offsets(const StripShape& shape) const {
  std::vector<std::int64_t> offsets;
  for (std::int64_t row = 0; row < terms.tap_rows; ++row) {
    for (std::int64_t kw = 0; kw < terms.tap_columns; ++kw) {
      offsets.push_back(tap_offset(shape, terms.kernel_row(row) * problem.dilation_h, kw * problem.dilation_w));
    }
  }
  return offsets;
}

std::int64_t strip_elements(const StripShape& shape, const Terms& terms) {
  return shape.part * terms.parts + kSlackPositions * kChannels;
}

}  // namespace gable::cpu::bf16
