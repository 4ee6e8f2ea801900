// `gable info`: lists devices and counter sources; for those that are not available, the reason and the cure.
#pragma once

#include "bench/console/console.h"

namespace gable::bench {

void info(Console& console);

}  // namespace gable::bench
