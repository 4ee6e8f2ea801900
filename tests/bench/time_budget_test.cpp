// How a study spends the time that it has: on T of all cases first, then on what rows take beside it. The clock is made
// up, so that nothing depends on how busy this machine is.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/measure/devices.h"
#include "bench/measure/measure.h"
#include "bench/workloads/cases.h"

namespace gable::bench {
namespace {

/// A clock of which each look takes 0.1 ms.
std::function<double()> ticking(double& now) {
  return [&now] { return now += 1e-4; };
}

TEST_CASE("the time that rows take for their energy is not that of the other rows") {
  std::vector<Case> cases;
  for (int i = 1; i <= 4; ++i) cases.push_back({.suite = "", .name = std::to_string(i), .op = Add{.shape = {i * 64}}});
  const std::vector<OpenDevice> devices = open_devices({"reference"}, 1);
  double now = 0;
  const MeasureOptions options{.seconds_each = 0.001, .seconds_total = 0.4, .clock = ticking(now)};
  for (const bool excused : {true, false}) {
    Outcome outcome;
    KnownRows known;
    measure_cases(cases, {devices, options, outcome, known},
                  {[](std::size_t, std::size_t, const std::string&) {},
                   [&](const Measured&, double) {
                     now += 0.3;
                     return excused ? 0.3 : 0.0;
                   }});
    CHECK((outcome.ran == 4) == excused);
  }
}

TEST_CASE("a layer whose one run is predicted to take longer than the study has is left out, and the others are not") {
  // A hundred seconds by the reference's own prediction, which is at the best.
  const std::vector<Case> cases{
      {.suite = "", .name = "long", .op = Conv2d{.input = {1, 512, 64, 64}, .weights = {512, 512, 7, 7}}},
      {.suite = "", .name = "short", .op = Add{.shape = {64}}}};
  const std::vector<OpenDevice> devices = open_devices({"reference"}, 1);
  double now = 0;
  const MeasureOptions options{.seconds_each = 0.001, .seconds_total = 2, .clock = ticking(now)};
  Outcome outcome;
  KnownRows known;
  measure_cases(cases, {devices, options, outcome, known},
                {[](std::size_t, std::size_t, const std::string&) {},
                 [&](const Measured& measured, double) {
                   CHECK(measured.one->name == "short");
                   return 0.0;
                 }});
  CHECK(outcome.ran == 1);
  REQUIRE(outcome.refused.size() == 1);
  CHECK(outcome.refused[0].name == "long");
  CHECK(outcome.refused[0].reason.starts_with(kOutOfTime));
  CHECK(outcome.refused[0].reason.find("by prediction") != std::string::npos);
}

TEST_CASE("rows that take what time is spare leave every case its T") {
  std::vector<Case> cases;
  for (int i = 1; i <= 8; ++i) cases.push_back({.suite = "", .name = std::to_string(i), .op = Add{.shape = {i * 64}}});
  const std::vector<OpenDevice> devices = open_devices({"reference"}, 1);
  double now = 0;
  MeasureOptions options{
      .seconds_each = 0.1, .max_runs = 1'000'000, .seconds_total = 3, .share_beside_times = 0.5, .clock = ticking(now)};
  Outcome outcome;
  KnownRows known;
  std::vector<double> spare;
  const MeasureCallbacks callbacks{[](std::size_t, std::size_t, const std::string&) {},
                                   [&](const Measured&, double seconds) {
                                     spare.push_back(seconds);
                                     if (std::isfinite(seconds)) now += 0.8 * seconds;
                                     return 0.0;
                                   }};
  measure_cases(cases, {devices, options, outcome, known}, callbacks);
  CHECK(outcome.ran == 8);
  REQUIRE(spare.size() == 8);
  CHECK(spare[0] > 1);
  CHECK(spare[1] < 0.5 * spare[0]);

  // Where T of all does not fit, reports have their share of the time so far.
  for (const double share : {0.5, 0.0}) {
    options = {.seconds_each = 0.01, .seconds_total = 2, .share_beside_times = share, .clock = ticking(now)};
    spare.clear();
    measure_cases(cases, {devices, options, outcome, known},
                  {[&](std::size_t, std::size_t, const std::string&) { now += 0.3; },
                   [&](const Measured&, double seconds) {
                     spare.push_back(seconds);
                     return 0.0;
                   }});
    REQUIRE(spare.size() >= 2);
    CHECK(spare.size() < 8);
    CHECK((spare[1] > 0.2) == (share > 0));
  }

  options.seconds_total = 0;
  spare.clear();
  measure_cases(cases, {devices, options, outcome, known}, callbacks);
  CHECK(spare == std::vector<double>(8, std::numeric_limits<double>::infinity()));
}

}  // namespace
}  // namespace gable::bench
