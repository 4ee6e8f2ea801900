// See regret.h.
#include "bench/record/regret.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace gable::bench {
namespace {

using nlohmann::json;

json time_json(const RegretTime& one) {
  json result{{"device", one.device}, {"kernel", one.kernel}, {"seconds", one.seconds}};
  if (one.predicted) result["predicted"] = *one.predicted;
  return result;
}

json layer_json(const RegretLayer& layer) {
  json times = json::array();
  for (const RegretTime& one : layer.times) times.push_back(time_json(one));
  json result{{"suite", layer.identity.suite}, {"name", layer.identity.name},     {"problem", layer.identity.problem},
              {"dtype", layer.identity.dtype}, {"layout", layer.identity.layout}, {"regret", layer.ratio()},
              {"pick", time_json(layer.pick)}, {"source", layer.source},          {"best", time_json(layer.best)},
              {"times", std::move(times)}};
  if (layer.predicted) result["predicted"] = *layer.predicted;
  if (!layer.rounds.empty()) result["rounds"] = layer.rounds;
  if (!layer.core_rates.empty()) result["core_rates"] = layer.core_rates;
  if (layer.left_out > 0) result["left_out"] = layer.left_out;
  return result;
}

}  // namespace

double RegretLayer::at_least() const {
  constexpr double kDoubt = 1.0 / 16;
  if (rounds.size() < 2) return 1;
  std::vector<double> sorted = rounds;
  std::sort(sorted.begin(), sorted.end());
  // The chance that at most `at` of the rounds lie below the median: a sum of binomial terms.
  std::size_t at = 0;
  double term = std::exp2(-static_cast<double>(sorted.size())), chance = term;
  while (true) {
    const auto next = static_cast<double>(at + 1);
    term *= (static_cast<double>(sorted.size()) - next + 1) / next;
    chance += term;
    if (chance > kDoubt) return std::max(1.0, sorted[at]);
    ++at;
  }
}

bool RegretLayer::is_unsteady() const {
  return left_out == 0 &&
         std::any_of(core_rates.begin(), core_rates.end(), [](double rate) { return rate < kSteadyRate; });
}

json to_json(const RegretDocument& document) {
  json summaries = json::array();
  for (const RegretSummary& one : document.summaries) {
    summaries.push_back({{"dtype", one.dtype},
                         {"layout", one.layout},
                         {"layers", one.layers},
                         {"geo", one.geo},
                         {"worst", one.worst},
                         {"above_1.05", one.above},
                         {"surely_above_1.05", one.surely_above},
                         {"surely_worst", one.surely_worst},
                         {"unsteady", one.unsteady},
                         {"steady_geo", one.steady_geo},
                         {"steady_worst", one.steady_worst},
                         {"right", one.right}});
  }
  json layers = json::array();
  for (const RegretLayer& layer : document.layers) layers.push_back(layer_json(layer));
  return {{"schema_version", 1},
          {"device", document.device},
          {"choosing_seconds", document.choosing},
          {"rounds", document.rounds},
          {"without_choice", document.without_choice},
          {"summary", std::move(summaries)},
          {"layers", std::move(layers)}};
}

}  // namespace gable::bench
