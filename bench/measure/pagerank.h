// PageRank rows of the suite `primitives`: irregular access, over a graph whose edges are spread evenly and over one
// whose degrees follow a power law. Ranks are checked against f64 on the host before anything is timed.
#pragma once

#include <vector>

#include "bench/measure/devices.h"
#include "bench/measure/measure.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/cases.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// A device without PageRank, and wrong ranks, are refused in `job.outcome`.
void measure_graphs(const std::vector<GraphCase>& cases, const MeasureJob& job, const RowCallbacks& callbacks);

}  // namespace gable::bench
