// See pagerank.h. A sample is many steps from the beginning, so that the start counts little.
#include "bench/measure/pagerank.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/measure/device_bandwidth.h"
#include "bench/measure/timed_row.h"
#include "bench/workloads/graph.h"
#include "bench/workloads/identity.h"

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

  Row measure(const GraphCase& one, const OpenDevice& device, const MeasureOptions& options) const {
    const Loop loop =
        device_loop(device.device, PagerankLoop{graph_.offsets, graph_.sources, graph_.out_degrees, kDamping});
    loop.run(kCheckedSteps);
    const double error = greatest_error(loop.result(), expected_);
    if (!(error <= kErrorBound)) {
      throw Error(ErrorCode::device_failure,
                  fmt::format("a rank is wrong by {:.2g} of its value; at most {:.2g} is right", error, kErrorBound));
    }
    const perf::Subject subject = subject_of(device.device, loop);
    const perf::Timing timing = perf::measure_alternating(std::span(&subject, 1), timing_options(options)).front();
    const LoopDetails& details = loop.details();
    Placement place = placement_of(device);
    place.kernel = details.kernel;
    Row row = timed_row(identity_of(one), std::move(place), {"event", timing, details.flop, details.bytes});
    row.edges_per_second = static_cast<double>(one.edges) / timing.seconds;
    row.accuracy = {.max_error = error, .error_bound = kErrorBound};
    return row;
  }

 private:
  Graph graph_;
  std::vector<double> expected_;
};

}  // namespace

void measure_graphs(const std::vector<GraphCase>& cases, const MeasureJob& job, const RowCallbacks& callbacks) {
  std::size_t done = 0;
  for (const GraphCase& one : cases) {
    callbacks.progress(done++, cases.size(), one.name);
    std::optional<MadeGraph> graph;
    for (const OpenDevice& device : job.devices) {
      const bool known = job.known.count(identity_of(one), placement_of(device)) > 0;
      if (!known && !graph) graph.emplace(one);
      try {
        callbacks.report(known ? job.known.take(identity_of(one), placement_of(device))
                               : graph->measure(one, device, job.options));
        ++job.outcome.ran;
      } catch (const Error& error) {
        job.outcome.refuse(identity_of(one), device.uri, error);
      }
    }
  }
}

}  // namespace gable::bench
