// Parts of a program that `gable measure` timed but that are no points of the roofline, since W or Q is not known:
// `gable diff` compares their times like those of rows.
#pragma once

#include "bench/record/study.h"

namespace gable::bench {

/// Appends a row with T, without W and Q, for each part of the program that has T and no row. Sums of several kernels
/// ("rest") have no T.
void add_timed_parts(Study& study);

}  // namespace gable::bench
