// Whether a unit that takes one half at a time reads windows in the image, row by row, or in a strip. In the image,
// nothing is copied, and taps in padding beside the image are skipped as those above and below are.
#pragma once

#include "cpu/bf16/blocking.h"

namespace gable::cpu::bf16 {

/// b: the blocking that stages the same problem.
bool may_read_in_rows(const Conv2dProblem& problem, const Blocking& b, const Bf16Unit& unit);

/// Positions of a half whose lines of the image L1 keeps from one pair of channels to the next: where pixels lie 2 KB
/// or 4 KB apart, they share few sets.
std::int64_t positions_in_l1(const Conv2dProblem& problem);

/// Outputs of an axis beside those that read all taps, up to which models look at each.
constexpr std::int64_t kMaxBorder = 64;

/// Kernel columns that such a unit takes.
constexpr std::int64_t kMaxKernelColumns = 64;

/// Of columns of the output, those [begin, end) whose taps in a kernel column read the image, counted from the first.
TapRange columns_inside(const Blocking& b, const TapRange& columns, std::int64_t kernel_column);

/// Whether masks (BorderMasks) can't skip what a half of these columns would read in padding: of a single column, all
/// positions of a kernel column are; of many columns, some without a mask. Its kernel columns are then taken in parts.
/// So are those of two positions, since one position's products wait for no latency.
bool takes_parts(const Blocking& b, const TapRange& columns, std::int64_t rows);
/// The same of up to kBorderColumns columns, which all have masks; false of more.
constexpr bool takes_few_in_parts(std::int64_t columns, std::int64_t rows) {
  return columns == 1 || (columns <= kBorderColumns && columns * rows == 2);
}

/// Fills border_halves of a cut that reads windows in rows, not folded. Plans alone run it, estimates have no masks.
void lay_out_border(Blocking& b);

/// Cycles of a run, by a cut that stages or that reads the image in rows.
double window_cycles(const Conv2dProblem& problem, const Blocking& b, const Bf16Unit& unit);

}  // namespace gable::cpu::bf16
