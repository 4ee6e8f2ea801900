// The end of the terminal's table where lists of networks ran: each network's total on each device.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

/// A line for each network and device: all convolutions, counts included. A device that ran another device's layers too
/// is compared with it: the totals, and the distribution of the layers' ratios. Empty without lists.
std::string totals_table(const Studies& studies);

}  // namespace gable::bench::report
