// Further rounds of `gable bench --rounds` (measure/rounds.h): gable starts itself with the same words and what to
// measure again, and reads the record from its standard output.
#pragma once

#include <vector>

#include "bench/cli/study_run.h"
#include "bench/console/console.h"

namespace gable::bench {

/// Adds rounds 2 to `measuring.rounds` to the rows, of GPUs if `options.rounds` asks for rounds. A round that fails is
/// named on the console, and no more are tried; the rows keep what they have. An interruption ends it.
void measure_rounds(const StudyOptions& options, const MeasureOptions& measuring, std::vector<Row>& rows,
                    Console& console);

}  // namespace gable::bench
