// A row after timing: identity, placement, T, and the least W and Q that the shapes allow.
#pragma once

#include "bench/record/row.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// The times of one row, and its work and traffic.
struct Sample {
  const char* time_source = "clock";  ///< or "event"
  perf::Timing timing{};
  double flop = 0;
  double bytes = 0;
};

Row timed_row(Identity identity, Placement place, const Sample& sample);

}  // namespace gable::bench
