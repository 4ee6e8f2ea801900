// Rounds of a study: the same rows measured again by a new process each, one after the other. Each process places
// buffers and code anew, and other users of the machine come and go between processes, so a row's rounds vary as two
// studies do. `gable diff` takes its noise from them.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/measure/measure.h"
#include "bench/record/row.h"
#include "bench/workloads/cases.h"

namespace gable::bench {

/// The indices of the `cases` that further rounds measure: cases with CPU rows (with `gpus`, also GPU rows) that are
/// short enough for their part of the time, including making their tensors.
std::vector<std::size_t> cases_of_rounds(const std::vector<Case>& cases, const std::vector<Row>& rows, bool gpus,
                                         const MeasureOptions& options);

/// Adds the times of a further round to the rows that it has, and makes medians of all rounds of their times. A row
/// that an earlier run of a study left with rounds gets no more than `rounds`.
void add_round(std::vector<Row>& rows, std::vector<Row> of_round, int rounds);

}  // namespace gable::bench
