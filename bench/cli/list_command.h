// `gable list`: lists the cases of a selection without running them. Comparisons outside gable take their shapes from
// its JSON.
#pragma once

#include "bench/console/console.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/selection.h"

namespace gable::bench {

/// Prints each case. The JSON has its fields as in a measurement, and its shapes, work and least traffic. `gpu`: with
/// the batch sizes for GPUs.
ExitCode list_command(const SelectionOptions& options, bool gpu, Console& console);

}  // namespace gable::bench
