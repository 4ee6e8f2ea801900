// Rounds of `gable regret`: medians of each contestant decide, so one round with badly placed memory does not.
#include "bench/measure/regret.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace gable::bench {
namespace {

RegretLayer layer(const char* name, double cpu, double onednn) {
  RegretLayer one{.identity = {.name = name, .problem = "p", .dtype = "f32", .layout = "nhwc"}};
  one.times = {{"cpu", "direct", cpu}, {"onednn", "direct", onednn}};
  one.pick = one.times[0];
  one.best = cpu < onednn ? one.times[0] : one.times[1];
  return one;
}

TEST_CASE("regret: of several rounds the median of each contestant counts, in whatever order layers come") {
  std::vector<RegretDocument> rounds(3);
  rounds[0].layers = {layer("a", 3, 2), layer("b", 1, 2)};
  rounds[1].layers = {layer("b", 1, 4), layer("a", 2, 2.5)};
  rounds[2].layers = {layer("a", 2, 9)};  // an interrupt ended the round
  const RegretDocument all = median_of(rounds);
  REQUIRE(all.layers.size() == 2);
  CHECK(all.layers[0].pick.seconds == 2);
  CHECK(all.layers[0].times[1].seconds == 2.5);
  CHECK(all.layers[0].ratio() == 1);  // 1.5 in the first round
  CHECK(all.layers[1].times[1].seconds == 3);
  CHECK(all.layers[1].best.device == "cpu");
}

TEST_CASE("regret: each contestant has what the ranking predicts for it, in every round's document") {
  Ranking ranking;
  ranking.candidates = {{.device = "cpu?threads=2", .kernel = "direct", .predicted = 2},
                        {.device = "cpu?threads=2", .kernel = "pointwise", .predicted = 3},
                        {.device = "cuda:0", .kernel = "wgmma", .predicted = 4, .copies = 1},
                        {.device = "cudnn:0", .predicted = 5},  // not asked for its kernel
                        {.device = "onednn?threads=2", .kernel = "direct", .refusal = "no f16"}};
  CHECK(predicted_seconds(ranking, "cpu?threads=2", "direct") == 2);
  CHECK(predicted_seconds(ranking, "cpu?kernel=pointwise&threads=2", "pointwise") == 3);
  CHECK(predicted_seconds(ranking, "cuda:0 from the host", "wgmma") == 4);
  CHECK(predicted_seconds(ranking, "cudnn:0", "engine 1") == 5);
  CHECK_FALSE(predicted_seconds(ranking, "onednn?threads=2", "direct"));
  CHECK_FALSE(predicted_seconds(ranking, "cpu?threads=1", "direct"));

  RegretDocument one;
  one.layers = {layer("a", 3, 2)};
  one.layers[0].times[0].predicted = 2.5;
  const nlohmann::json times = to_json(median_of({one, one}))["layers"][0]["times"];
  CHECK(times[0]["predicted"] == 2.5);
  CHECK_FALSE(times[1].contains("predicted"));
}

TEST_CASE("regret: one round is what it was") {
  RegretDocument one;
  one.layers = {layer("a", 3, 2)};
  CHECK(median_of({one}).layers[0].ratio() == 1.5);
}

TEST_CASE("regret: beyond the noise is what nearly all rounds show") {
  RegretLayer one;
  one.rounds = {1.2, 1.1, 1.3, 1.15};
  CHECK(one.at_least() == 1.1);  // all four above the median: 1/16
  one.rounds = {1.2, 1.1, 0.9, 1.3, 1.15};
  CHECK(one.at_least() == 1);
  one.rounds = {1.2, 1.1, 1.3, 1.15, 1.25, 1.22, 1.12, 0.9};
  CHECK(one.at_least() == 1.1);  // one of eight below: 9/256
  one.rounds = {1.5};
  CHECK(one.at_least() == 1);
}

TEST_CASE("regret: two equal candidates are above 1.05 by noise, but not surely") {
  std::vector<RegretDocument> rounds(5);
  const double cpu[] = {1.0, 1.2, 1.2, 1.2, 0.9};
  for (std::size_t i = 0; i < rounds.size(); ++i) rounds[i].layers = {layer("a", cpu[i], 1), layer("b", 1.2, 1)};
  RegretDocument all = median_of(rounds);
  summarize(all);
  REQUIRE(all.summaries.size() == 1);
  CHECK(all.summaries[0].above == 2);
  CHECK(all.summaries[0].surely_above == 1);
  CHECK(all.summaries[0].surely_worst == doctest::Approx(1.2));
}

RegretLayer at_rate(double rate, double cpu, double onednn) {
  RegretLayer one = layer("a", cpu, onednn);
  one.core_rates = {rate};
  return one;
}

TEST_CASE("regret: rounds in which a core was slow do not count, whoever was faster in them") {
  for (const bool kind : {false, true}) {
    std::vector<RegretDocument> rounds(4);
    rounds[0].layers = {at_rate(1000, 1.1, 1)};
    rounds[1].layers = {at_rate(400, kind ? 1 : 3, 2)};
    rounds[2].layers = {at_rate(900, 1.1, 1)};
    rounds[3].layers = {at_rate(420, kind ? 1 : 3, 2)};
    RegretDocument all = median_of(rounds);
    summarize(all);
    const RegretLayer& one = all.layers.front();
    CHECK(one.ratio() == doctest::Approx(1.1));
    CHECK(one.rounds.size() == 2);
    CHECK(one.left_out == 2);
    CHECK(one.core_rates == std::vector<double>{1, 0.4, 0.9, 0.42});
    CHECK(all.summaries.front().unsteady == 0);
  }
}

TEST_CASE("regret: where cores were slow in nearly all rounds all count, and the summary says so") {
  std::vector<RegretDocument> rounds(3);
  for (RegretDocument& round : rounds) round.layers = {at_rate(400, 3, 2), layer("b", 1.02, 1)};
  rounds[0].layers[0].core_rates = {1000};
  RegretDocument all = median_of(rounds);
  summarize(all);
  const RegretSummary& one = all.summaries.front();
  CHECK(all.layers[0].rounds.size() == 3);
  CHECK(one.worst == 1.5);
  CHECK(one.unsteady == 1);
  CHECK(one.steady_worst == doctest::Approx(1.02));
  CHECK(one.steady_geo == doctest::Approx(1.02));
}

TEST_CASE("regret: the rate of cores is that of the slowest, in runs a second") {
  CoreRates rates(2, DType::f32);
  CHECK(rates.slowest() > 0);
}

}  // namespace
}  // namespace gable::bench
