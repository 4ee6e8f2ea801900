// The end of the terminal's table: in which regime the rows are and what would help, the naive model beside the
// measurement, and what fused pools save.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

/// Rows of one regime share its advice; a line each. Empty without ceilings.
std::string regime_table(const Studies& studies);
/// Predicted and measured rates of convolutions, and their ratio. Empty where nothing is predicted.
std::string naive_table(const Studies& studies);
/// Bytes and time that fused pools save. Empty without them.
std::string fusion_table(const Studies& studies);

}  // namespace gable::bench::report
