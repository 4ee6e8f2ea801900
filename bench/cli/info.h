// `gable info`: what there is to run on and to count with, and for what is not there the reason and the cure.
#pragma once

#include "bench/cli/console.h"

namespace gable::bench {

void info(Console& console);

}  // namespace gable::bench
