// See graph.h.
#include "bench/workloads/graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace gable::bench {

Graph make_graph(const GraphCase& one) {
  std::mt19937_64 engine(7);
  const double n = one.vertices;
  const auto uniform = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
  const auto vertex = [&] {
    const double at = one.power_law ? std::exp(uniform() * std::log(n)) - 1 : uniform() * n;
    return std::min(static_cast<std::int32_t>(at), one.vertices - 1);
  };
  std::vector<std::array<std::int32_t, 2>> edges(static_cast<std::size_t>(one.edges));
  Graph graph;
  graph.offsets.assign(static_cast<std::size_t>(one.vertices) + 1, 0);
  graph.out_degrees.assign(static_cast<std::size_t>(one.vertices), 0);
  for (auto& [from, to] : edges) {
    from = vertex() / 8 * 8;  // seven of eight have no out-edge
    to = vertex();
    ++graph.out_degrees[static_cast<std::size_t>(from)];
    ++graph.offsets[static_cast<std::size_t>(to) + 1];
  }
  for (std::size_t v = 1; v < graph.offsets.size(); ++v) graph.offsets[v] += graph.offsets[v - 1];
  std::vector<std::int64_t> next(graph.offsets.begin(), graph.offsets.end() - 1);
  graph.sources.resize(edges.size());
  for (const auto& [from, to] : edges)
    graph.sources[static_cast<std::size_t>(next[static_cast<std::size_t>(to)]++)] = from;
  return graph;
}

std::vector<double> pagerank_on_host(const Graph& graph, int steps, double damping) {
  const std::size_t vertices = graph.out_degrees.size();
  const auto n = static_cast<double>(vertices);
  std::vector<double> ranks(vertices, 1 / n), shares(vertices);
  for (int step = 0; step < steps; ++step) {
    double lost = 0;
    for (std::size_t v = 0; v < vertices; ++v) {
      if (graph.out_degrees[v] == 0) lost += ranks[v];
      shares[v] = graph.out_degrees[v] == 0 ? 0 : ranks[v] / graph.out_degrees[v];
    }
    for (std::size_t v = 0; v < vertices; ++v) {
      double sum = 0;
      for (auto e = static_cast<std::size_t>(graph.offsets[v]); e < static_cast<std::size_t>(graph.offsets[v + 1]); ++e)
        sum += shares[static_cast<std::size_t>(graph.sources[e])];
      ranks[v] = (1 - damping) / n + damping * (sum + lost / n);
    }
  }
  return ranks;
}

}  // namespace gable::bench
