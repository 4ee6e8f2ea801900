// Whether a unit that takes one half at a time reads windows in the image, row by row, or in a strip. In the image,
// nothing is copied, and taps in padding beside the image are skipped as those above and below are. But a half does not
// reach into the next row.
#pragma once

#include "cpu/bf16/blocking.h"

namespace gable::cpu::bf16 {

/// b: the blocking that stages the same problem.
bool may_read_in_rows(const Conv2dProblem& problem, const Blocking& b, const Bf16Unit& unit);

/// Cycles of a run, by a cut that stages or that reads the image in rows.
double window_cycles(const Conv2dProblem& problem, const Blocking& b, const Bf16Unit& unit);

}  // namespace gable::cpu::bf16
