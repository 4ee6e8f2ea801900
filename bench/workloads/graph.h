// Graphs for PageRank, and its ranks in f64 on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/workloads/cases.h"

namespace gable::bench {

struct Graph {
  std::vector<std::int64_t> offsets;  ///< of in-edges, as in PagerankLoop
  std::vector<std::int32_t> sources, out_degrees;
};

/// Makes the same graph on every machine. For a power law, both ends of an edge are drawn with a density that falls as
/// 1 / v. Every graph has vertices without out-edges.
Graph make_graph(const GraphCase& one);

/// The ranks after `steps` steps, in f64.
std::vector<double> pagerank_on_host(const Graph& graph, int steps, double damping);

}  // namespace gable::bench
