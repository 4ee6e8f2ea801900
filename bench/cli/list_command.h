// `gable list`: what a selection holds, without running it, so that comparisons outside gable take their shapes from
// here.
#pragma once

#include "bench/cli/console.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/selection.h"

namespace gable::bench {

/// Prints each case; the JSON has each as in a measurement, and its shapes, work and least traffic. `gpu`: with a GPU's
/// batches.
ExitCode list_command(const SelectionOptions& options, bool gpu, Console& console);

}  // namespace gable::bench
