// PageRank rows of the suite `primitives`: irregular access on a graph with evenly spread edges and on one whose
// degrees follow a power law. Ranks are compared with f64 on the host before anything is timed.
#pragma once

#include <vector>

#include "bench/measure/devices.h"
#include "bench/measure/measure.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/cases.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// Devices without PageRank and devices with wrong ranks are refused in `job.outcome`.
void measure_graphs(const std::vector<GraphCase>& cases, const MeasureJob& job, const RowCallbacks& callbacks);

}  // namespace gable::bench
