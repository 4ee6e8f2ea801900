// Outputs cut into regions of equal taps: in the middle of an image all taps read it, towards its border some read
// padding and are left out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/bf16/work_unit.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {

/// One axis of a convolution.
struct Axis {
  std::int64_t size, taps, stride, pad, dilation;
  std::int64_t pitch;  // elements from pixel to pixel
};

/// Consecutive outputs along one axis that read the same taps.
struct Region {
  std::int64_t begin, end;
  std::int64_t first_tap, taps;
  std::int64_t last_inside;  // the last output for which these taps lie inside the image; without taps: beyond the end
  std::int64_t pitch;        // elements of input from output to output
};

/// The region that starts with output `begin`, of the outputs before `end`.
inline Region region_at(const Axis& axis, std::int64_t begin, std::int64_t end) {
  const auto taps_of = [&](std::int64_t out) {
    return taps_inside(out * axis.stride - axis.pad, axis.size, axis.dilation, axis.taps);
  };
  const TapRange taps = taps_of(begin);
  std::int64_t same = begin + 1;
  while (same < end && taps_of(same).begin == taps.begin && taps_of(same).end == taps.end) ++same;
  const std::int64_t last_tap = taps.end - 1;
  const std::int64_t last_inside = taps.begin == taps.end
                                       ? same + kHalfPositions
                                       : (axis.size - 1 + axis.pad - last_tap * axis.dilation) / axis.stride;
  return {begin, same, taps.begin, taps.end - taps.begin, last_inside, axis.stride * axis.pitch};
}

/// Calls use(rows, columns) for each region of a work unit's outputs.
template <class Use>
void for_each_region(const Conv2dProblem& p, const WorkUnit& work, const Use& use) {
  const Axis h{p.h, p.r, p.stride_h, p.pad_top, p.dilation_h, p.w * p.c};
  const Axis w{p.w, p.s, p.stride_w, p.pad_left, p.dilation_w, p.c};
  const std::int64_t end_row = work.first_row + work.rows, end_column = work.first_column + work.columns;
  for (std::int64_t row = work.first_row; row < end_row;) {
    const Region rows = region_at(h, row, end_row);
    for (std::int64_t column = work.first_column; column < end_column;) {
      const Region columns = region_at(w, column, end_column);
      use(rows, columns);
      column = columns.end;
    }
    row = rows.end;
  }
}

}  // namespace gable::cpu::bf16
