// See pagerank.h. A sample is many steps from the beginning, so that the start counts little.
#include "bench/workloads/pagerank.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "bench/measure/device_bandwidth.h"

namespace gable::bench {
namespace {

constexpr float kDamping = 0.85F;
constexpr int kCheckedSteps = 8;
constexpr double kErrorBound = 1e-4;  ///< of f32 sums of thousands of ranks, each relative to its own

perf::TimingOptions timing_options(const MeasureOptions& options) {
  perf::TimingOptions timing;
  timing.min_runs = std::min(5, options.max_runs);
  timing.max_runs = options.max_runs;
  timing.budget_seconds = options.seconds_each;
  timing.min_sample_seconds = 2e-3;
  return timing;
}

double greatest_error(const std::vector<float>& ranks, const std::vector<double>& expected) {
  if (ranks.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t v = 0; v < expected.size(); ++v) {
    const double error = std::abs(static_cast<double>(ranks[v]) - expected[v]) / expected[v];
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

class MadeGraph {
 public:
  explicit MadeGraph(const GraphCase& one)
      : graph_(make_graph(one)), expected_(pagerank_on_host(graph_, kCheckedSteps, kDamping)) {}

  MeasuredGraph measure(const GraphCase& one, const OpenDevice& device, const MeasureOptions& options) const {
    const Loop loop =
        device_loop(device.device, PagerankLoop{graph_.offsets, graph_.sources, graph_.out_degrees, kDamping});
    loop.run(kCheckedSteps);
    const double error = greatest_error(loop.result(), expected_);
    if (!(error <= kErrorBound)) {
      throw Error(ErrorCode::device_failure,
                  fmt::format("a rank is wrong by {:.2g} of its value; at most {:.2g} is right", error, kErrorBound));
    }
    const perf::Subject subject = subject_of(device.device, loop);
    return {.one = &one,
            .device = &device,
            .details = loop.details(),
            .timing = perf::measure_alternating(std::span(&subject, 1), timing_options(options)).front(),
            .max_error = error,
            .error_bound = kErrorBound};
  }

 private:
  Graph graph_;
  std::vector<double> expected_;
};

}  // namespace

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

void measure_graphs(const std::vector<GraphCase>& cases, const std::vector<OpenDevice>& devices,
                    const MeasureOptions& options, Outcome& outcome,
                    const std::function<void(std::size_t, std::size_t, const std::string&)>& progress,
                    const std::function<void(const MeasuredGraph&)>& report) {
  std::size_t done = 0;
  for (const GraphCase& one : cases) {
    progress(done++, cases.size(), one.name);
    const MadeGraph graph(one);
    for (const OpenDevice& device : devices) {
      try {
        report(graph.measure(one, device, options));
        ++outcome.ran;
      } catch (const Error& error) {
        outcome.refuse(one, device.uri, error);
      }
    }
  }
}

}  // namespace gable::bench
