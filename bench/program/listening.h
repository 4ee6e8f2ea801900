// What listening to regions adds to a program's T, where that is enough to be said.
#pragma once

#include <string>
#include <vector>

#include "bench/program/parts.h"
#include "perfcounters/program/region_cost.h"
#include "perfcounters/program/session.h"

namespace gable::bench {

/// Flags the parts whose T has more than 2 % for the begins and ends of regions; returns a note on the program's time,
/// or nothing where that has less. `regions`: all, one for each path. `cpu_seconds`: of the program, or 0.
std::string flag_listening(std::vector<MeasuredPart>& parts, const std::vector<perf::RegionRecord>& regions,
                           const perf::RegionCost& cost, double cpu_seconds);

}  // namespace gable::bench
