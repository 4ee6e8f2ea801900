// The terminal's table of a study, printed at the end of a run.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

// One line for each measurement, with aligned columns. Where two devices measured the same problem, the last column
// compares each with one of them (a vendor library if it is there, else the first): "1.25x onednn" is 1.25 times as
// fast.
std::string table(const Studies& studies);

}  // namespace gable::bench::report
