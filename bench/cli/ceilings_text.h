// The terminal's table of ceilings and rates.
#pragma once

#include "bench/console/console.h"
#include "bench/measure/ceilings.h"

namespace gable::bench {

void print_ceilings(const MachineCeilings& ceilings, Console& console);

}  // namespace gable::bench
