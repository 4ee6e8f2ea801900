// The terminal's table of a program that is not gable's: the time of each part, and where W and Q are known its place
// on the roofline.
#pragma once

#include <string>

#include "bench/record/study.h"

namespace gable::bench::report {

/// Empty for a study without a program.
std::string program_table(const Study& study);

}  // namespace gable::bench::report
