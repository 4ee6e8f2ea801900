// See rounds.h.
#include "bench/measure/rounds.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "bench/measure/known_rows.h"
#include "bench/workloads/data.h"
#include "bench/workloads/identity.h"
#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

double median_of(const std::vector<TimingRound>& rounds, double TimingRound::*field) {
  std::vector<double> values;
  for (const TimingRound& round : rounds) values.push_back(round.*field);
  return perf::median(std::move(values));
}

TimingRound round_of(const Timing& time) { return {.q1 = time.q1, .seconds = time.seconds, .q3 = time.q3}; }

void add_round(Timing& time, const Timing& other) {
  if (time.rounds.empty()) time.rounds.push_back(round_of(time));
  time.rounds.push_back(round_of(other));
  time.q1 = median_of(time.rounds, &TimingRound::q1);
  time.seconds = median_of(time.rounds, &TimingRound::seconds);
  time.q3 = median_of(time.rounds, &TimingRound::q3);
  if (time.fastest && other.fastest) time.fastest = std::min(*time.fastest, *other.fastest);
  time.runs += std::min(other.runs, std::numeric_limits<int>::max() - time.runs);
}

}  // namespace

std::vector<std::size_t> cases_of_rounds(const std::vector<Case>& cases, const std::vector<Row>& rows, bool gpus,
                                         const MeasureOptions& options) {
  const auto key = [](const Identity& i) {
    std::string text;
    for (const std::string* part : {&i.suite, &i.name, &i.op, &i.problem, &i.dtype, &i.math}) text += *part + '\n';
    return text;
  };
  std::map<std::string, double> longest;
  for (const Row& row : rows) {
    if (row.on_gpu() && !gpus) continue;
    double& seconds = longest[key(row.identity)];
    seconds = std::max(seconds, row.time.seconds);
  }
  const double part = options.seconds_each / options.rounds;
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto found = longest.find(key(identity_of(cases[i])));
    const bool measured = found != longest.end();
    if (measured && std::max(found->second, seconds_to_make(cases[i].op, 1)) <= part) some.push_back(i);
  }
  return some;
}

void add_round(std::vector<Row>& rows, std::vector<Row> of_round, int rounds) {
  KnownRows known(std::move(of_round));
  for (Row& row : rows) {
    if (known.count(row.identity, row.place) == 0) continue;
    if (row.time.rounds.size() < static_cast<std::size_t>(rounds))
      add_round(row.time, known.take(row.identity, row.place).time);
  }
}

}  // namespace gable::bench
