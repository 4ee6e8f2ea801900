// Cuts outputs into regions whose outputs read the image with the same taps. Padding taps of a region are skipped.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/bf16/axis.h"
#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {

/// Consecutive outputs along one axis that read the same taps.
struct Region {
  std::int64_t begin, end;
  std::int64_t first_tap, taps;
  std::int64_t last_inside;  // the last output whose taps of this range read the image; without taps: past the end
  std::int64_t pitch;        // elements of input from output to output
};

/// The region that starts with output `begin` and ends before `end`.
inline Region region_at(const Axis& axis, std::int64_t begin, std::int64_t end) {
  const TapRange taps = axis.taps_of(begin);
  std::int64_t same = begin + 1;
  while (same < end && axis.taps_of(same).begin == taps.begin && axis.taps_of(same).end == taps.end) ++same;
  const std::int64_t last_tap = taps.end - 1;
  const std::int64_t last_inside = taps.begin == taps.end
                                       ? same + kHalfPositions
                                       : (axis.size - 1 + axis.pad - last_tap * axis.dilation) / axis.stride;
  return {begin, same, taps.begin, taps.end - taps.begin, last_inside, axis.stride * axis.pitch};
}

/// Calls use(rows, columns) for each region of a work unit's outputs.
template <class Use>
void for_each_region(const Run& run, const WorkUnit& work, const Use& use) {
  const Axis h = row_axis(run.problem, run.blocking.geometry), w = column_axis(run.problem, run.blocking.geometry);
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
