// Rounds of a study: the same rows measured again by a new process each, one after the other. Where buffers and code
// lie is drawn anew by each process, and the machine's other users come and go between them, so the rounds of a row lie
// apart as two studies do: `gable diff` takes its noise from them.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/measure/measure.h"
#include "bench/record/row.h"
#include "bench/workloads/cases.h"

namespace gable::bench {

/// Which of `cases` further rounds measure, by index: those that have rows of CPUs, with `gpus` of GPUs too, each of
/// which is short enough for its part of the time, and whose tensors are made in as long.
std::vector<std::size_t> cases_of_rounds(const std::vector<Case>& cases, const std::vector<Row>& rows, bool gpus,
                                         const MeasureOptions& options);

/// Adds the times of a further round to the rows that it has, and makes medians of all rounds of their times. A row
/// that an earlier run of a study left with rounds gets no more than `rounds`.
void add_round(std::vector<Row>& rows, std::vector<Row> of_round, int rounds);

}  // namespace gable::bench
