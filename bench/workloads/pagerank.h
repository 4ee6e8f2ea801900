// PageRank rows of the suite `primitives`: irregular access, over a graph whose edges are spread evenly and over one
// whose degrees follow a power law. Ranks are checked against f64 on the host before anything is timed.
#pragma once

#include <gable/study.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure/devices.h"
#include "bench/measure/measure.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/cases.h"
#include "perfcounters/timing.h"

namespace gable::bench {

struct Graph {
  std::vector<std::int64_t> offsets;  ///< of in-edges, as PagerankLoop has them
  std::vector<std::int32_t> sources, out_degrees;
};

/// The same on every machine. In a power law both ends of an edge are drawn with a density that falls as 1 / v; every
/// graph has vertices without out-edges.
Graph make_graph(const GraphCase& one);

/// After so many steps, in f64.
std::vector<double> pagerank_on_host(const Graph& graph, int steps, double damping);

struct MeasuredGraph {
  const GraphCase* one = nullptr;
  const OpenDevice* device = nullptr;
  LoopDetails details;
  perf::Timing timing;   ///< of a step
  double max_error = 0;  ///< relative
  double error_bound = 0;
};

/// A device without PageRank, and wrong ranks, are refused in `outcome`.
void measure_graphs(const std::vector<GraphCase>& cases, const std::vector<OpenDevice>& devices,
                    const MeasureOptions& options, Outcome& outcome,
                    const std::function<void(std::size_t, std::size_t, const std::string&)>& progress,
                    const std::function<void(const MeasuredGraph&)>& report);

}  // namespace gable::bench
