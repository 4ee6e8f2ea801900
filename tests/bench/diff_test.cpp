// `gable diff`: pairing, verdicts, and how often they are wrong on samples drawn at random.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bench/diff/compare.h"
#include "bench/diff/repeated.h"
#include "bench/diff/timed_parts.h"
#include "bench/measure/rounds.h"
#include "perfcounters/timing.h"
#include "tests/tools/fast.h"

using namespace gable;
using namespace gable::bench;

namespace {

Row row_of(const std::string& name, const perf::Timing& timing, const std::string& device = "cpu") {
  Row row;
  row.identity = {.suite = "s", .name = name, .op = "conv2d", .dtype = "f32"};
  row.place.device = device;
  row.place.threads = 1;
  row.time = {.seconds = timing.seconds, .q1 = timing.q1, .q3 = timing.q3, .runs = timing.runs};
  return row;
}

/// Quartiles 0.4 % apart.
perf::Timing steady(double seconds, int runs = 40) {
  return {.seconds = seconds, .q1 = 0.998 * seconds, .q3 = 1.002 * seconds, .runs = runs, .samples = {}};
}

Study rows_of(int count, double seconds, const std::string& device = "cpu") {
  Study study;
  for (int i = 0; i < count; ++i) study.rows.push_back(row_of(std::to_string(i), steady(seconds), device));
  return study;
}

constexpr int kRounds = 16, kRunsOfRound = 6;

/// Each row measured in kRounds rounds that agree.
Study in_rounds(Study study) {
  for (Row& row : study.rows)
    row.time.rounds.assign(kRounds, {.q1 = row.time.q1, .seconds = row.time.seconds, .q3 = row.time.q3});
  return study;
}

/// How a simulated machine's samples scatter.
struct Machine {
  double within = 0.005;   ///< standard deviation of the samples of a run, as a share
  double skew = 0.005;     ///< mean of the exponential time that others add to each sample
  double spikes = 0.02;    ///< share of samples that take 1.5 times as long
  double between = 0.002;  ///< standard deviation of a row's level from run to run
  double drift = 0.01;     ///< and of all rows together
  int runs = 30;
};

class Simulation {
 public:
  Simulation(const Machine& machine, int seed) : machine_(machine), random_(unsigned(seed)) {}

  /// A study of `rows` rows. Row 0 takes `factor` times as long.
  Study study(int rows, double factor = 1) {
    Study study;
    const double drift = machine_.drift * normal_(random_);
    for (int i = 0; i < rows; ++i) {
      const double level = (i == 0 ? factor : 1) * std::exp(drift + machine_.between * normal_(random_));
      study.rows.push_back(row_of(std::to_string(i), timing(1e-3 * (1 + i) * level)));
    }
    return study;
  }

  /// The same by the processes of `gable bench --rounds`.
  Study study_in_rounds(int rows, double factor = 1) {
    Study all = study(rows, factor);
    for (int round = 1; round < kRounds; ++round) add_round(all.rows, study(rows, factor).rows, kRounds);
    return all;
  }

 private:
  perf::Timing timing(double seconds) {
    std::vector<double> samples;
    for (int i = 0; i < machine_.runs; ++i) {
      const double noise = machine_.within * normal_(random_) + machine_.skew * exponential_(random_);
      samples.push_back(seconds * std::exp(noise) * (uniform_(random_) < machine_.spikes ? 1.5 : 1));
    }
    return perf::summarize(std::move(samples));
  }

  Machine machine_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::exponential_distribution<double> exponential_;
  std::uniform_real_distribution<double> uniform_;
};

const int trials = is_fast() ? 100 : 400;

using Take = Study (Simulation::*)(int rows, double factor);

/// In how many of `trials` comparisons of identical builds any row is slower or faster.
int false_alarms(const Machine& machine, int rows, Take take = &Simulation::study) {
  int alarms = 0;
  for (int seed = 0; seed < trials; ++seed) {
    Simulation simulation(machine, seed);
    const Study before = (simulation.*take)(rows, 1), after = (simulation.*take)(rows, 1);
    const StudyDiff diff = compare_studies(before, after, {});
    alarms += diff.count(Judgement::slower) + diff.count(Judgement::faster) > 0;
  }
  return alarms;
}

int caught(const Machine& machine, int rows, double factor) {
  int found = 0;
  for (int seed = 0; seed < trials; ++seed) {
    Simulation simulation(machine, seed);
    const Study before = simulation.study_in_rounds(rows), after = simulation.study_in_rounds(rows, factor);
    found += compare_studies(before, after, {}).pairs[0].judgement == Judgement::slower;
  }
  return found;
}

}  // namespace

TEST_CASE("Student's quantiles are those of the tables") {
  CHECK(student_quantile(0.025, 10) == doctest::Approx(2.228139).epsilon(1e-5));
  CHECK(student_quantile(0.005, 3) == doctest::Approx(5.840909).epsilon(1e-5));
  CHECK(student_quantile(0.0005, 30) == doctest::Approx(3.645959).epsilon(1e-5));
  CHECK(student_quantile(0.05, 1) == doctest::Approx(6.313752).epsilon(1e-5));
  CHECK(student_quantile(0.025, 1e6) == doctest::Approx(1.959966).epsilon(1e-5));  // a normal distribution's
}

TEST_CASE("identical builds: at most 1 % of the comparisons raise a false alarm") {
  const Machine quiet;
  CHECK(false_alarms({.drift = 0}, 1) <= trials / 100);
  CHECK(false_alarms(quiet, 10) <= trials / 100);
  CHECK(false_alarms(quiet, 100) <= trials / 100);
  Machine loud{.within = 0.03, .skew = 0.03, .spikes = 0.1, .between = 0.015};
  CHECK(false_alarms(loud, 100) <= trials / 100);
  loud.runs = 5;
  loud.spikes = 0.02;  // four spikes of five samples would be a slower row
  CHECK(false_alarms(loud, 100) <= trials / 100);
}

TEST_CASE("studies in rounds of identical builds: at most 1 % of the comparisons raise a false alarm") {
  for (const int rows : {1, 12}) {
    CAPTURE(rows);
    CHECK(false_alarms({.runs = kRunsOfRound}, rows, &Simulation::study_in_rounds) <= trials / 100);
  }
  const Machine loud{.within = 0.03, .skew = 0.03, .spikes = 0.1, .between = 0.05, .runs = kRunsOfRound};
  CHECK(false_alarms(loud, 10, &Simulation::study_in_rounds) <= trials / 100);
}

TEST_CASE("studies in rounds: 3 % on a quiet row are caught in at least 95 % of the comparisons") {
  for (const int rows : {1, 12}) {
    CAPTURE(rows);
    Machine machine{.runs = kRunsOfRound};
    if (rows < kMinRows) machine.drift = 0;  // can't be told from a change of the only row
    CHECK(caught(machine, rows, 1.03) >= trials * 95 / 100);
  }
}

TEST_CASE("studies in rounds: noise that lasts for a whole study is not named where the rounds scatter as well") {
  // As a layer whose weights fill a cache that the machine's other users share: row 0 scatters by 4 % from round to
  // round, and by as much from study to study.
  int alarms = 0;
  for (int seed = 0; seed < trials; ++seed) {
    std::mt19937 random{unsigned(seed)};
    std::normal_distribution<double> normal(0, 0.04);
    Simulation simulation({.runs = kRunsOfRound}, seed);
    std::array<Study, 2> sides;
    for (Study& side : sides) {
      const double level = normal(random);
      for (int round = 0; round < kRounds; ++round) {
        const Study one = simulation.study(10, std::exp(level + normal(random)));
        if (round == 0)
          side = one;
        else
          add_round(side.rows, one.rows, kRounds);
      }
    }
    const StudyDiff diff = compare_studies(sides[0], sides[1], DiffOptions{});
    alarms += diff.count(Judgement::slower) + diff.count(Judgement::faster) > 0;
  }
  CHECK(alarms <= trials / 100);
}

TEST_CASE("rows with too few rounds, or fewer than the others of their study, are compared without them") {
  Simulation simulation({}, 1);
  Study before = simulation.study_in_rounds(10), after = simulation.study_in_rounds(10);
  CHECK(compare_studies(before, after, {}).in_rounds == 10);
  after.rows[3].time.rounds.pop_back();
  CHECK(compare_studies(before, after, {}).in_rounds == 9);
  for (Row& row : after.rows) row.time.rounds.resize(kMinRounds - 1);
  CHECK(compare_studies(before, after, {}).in_rounds == 0);
}

TEST_CASE("a row's times are the medians of its rounds") {
  std::vector<Row> rows{row_of("a", steady(1)), row_of("b", steady(1))};
  add_round(rows, {row_of("a", steady(5))}, 3);
  add_round(rows, {row_of("a", steady(2)), row_of("b", steady(3))}, 3);
  add_round(rows, {row_of("a", steady(9))}, 3);  // has three
  REQUIRE(rows[0].time.rounds.size() == 3);
  CHECK(rows[0].time.seconds == 2);
  CHECK(rows[0].time.q1 == doctest::Approx(2 * 0.998));
  CHECK(rows[0].time.runs == 120);
  REQUIRE(rows[1].time.rounds.size() == 2);
  CHECK(rows[1].time.seconds == 2);
  CHECK(rows[1].time.rounds[1].q3 == doctest::Approx(3 * 1.002));
}

TEST_CASE("rows pair by all of their identity, equal ones in their order, and the rest are listed") {
  Study before = rows_of(2, 1e-3), after = rows_of(2, 1e-3);
  before.rows.push_back(row_of("twice", steady(1e-3)));
  before.rows.push_back(row_of("twice", steady(2e-3)));
  after.rows.push_back(row_of("twice", steady(1e-3)));
  after.rows.push_back(row_of("twice", steady(2e-3)));
  before.rows.push_back(row_of("cold", steady(1e-3)));
  after.rows.push_back(row_of("cold", steady(1e-3)));
  after.rows.back().place.cache = "cold";
  before.rows.push_back(row_of("math", steady(1e-3)));
  after.rows.push_back(row_of("math", steady(1e-3)));
  after.rows.back().identity.math = "strict";  // as no math
  before.rows.push_back(row_of("epilogue", steady(1e-3)));
  after.rows.push_back(row_of("epilogue", steady(1e-3)));
  after.rows.back().identity.epilogue = EpilogueFields{.bias = true};
  after.rows[0].place.kernel = "another";
  const StudyDiff diff = compare_studies(before, after, {});
  REQUIRE(diff.pairs.size() == 5);
  CHECK(diff.pairs[0].kernel_changed());
  CHECK(diff.pairs[3].after->time.seconds == 2e-3);
  REQUIRE(diff.only_before.size() == 2);
  CHECK(diff.only_before[0]->identity.name == "cold");
  CHECK(diff.only_after.size() == 2);
  CHECK(compare_studies(before, {}, {}).pairs.empty());
}

TEST_CASE("parts of a program without W or Q are compared by T") {
  const auto program = [](double seconds) {
    Study study = rows_of(1, 1);
    study.rows[0].identity.op = "region";
    ProgramEntry entry{.command = "./apps/heat 100"};
    ProgramPart has_row{.kind = "region", .name = "0", .device = "cpu"}, timed = has_row, untimed = has_row;
    has_row.time = CallTime{.seconds = 1, .q1 = 1, .q3 = 1};
    timed.name = "solve";
    timed.called = {.calls = 50, .seconds = 50 * seconds};
    timed.time = CallTime{.seconds = seconds, .q1 = 0.998 * seconds, .q3 = 1.002 * seconds};
    untimed.name = "all others";
    entry.parts = {has_row, timed, untimed};
    study.program = entry;
    add_timed_parts(study);
    return study;
  };
  const Study before = program(1), after = program(2);
  REQUIRE(before.rows.size() == 2);
  CHECK(before.rows[1].identity.suite == "heat");
  CHECK(before.rows[1].identity.name == "solve");
  CHECK(before.rows[1].time.runs == 50);
  const StudyDiff diff = compare_studies(before, after, {});
  REQUIRE(diff.pairs.size() == 2);
  CHECK(diff.pairs[0].ratio == doctest::Approx(1));
  CHECK(diff.pairs[1].ratio == doctest::Approx(2));
  CHECK(diff.pairs[1].judgement == Judgement::slower);
  Study none = rows_of(3, 1);
  add_timed_parts(none);
  CHECK(none.rows.size() == 3);
}

TEST_CASE("slower, faster, and can't tell with its reason: studies without rounds have wide intervals") {
  Study before = rows_of(20, 1e-3), after = rows_of(20, 1e-3);
  after.rows[0] = row_of("0", steady(1.3e-3));
  after.rows[1] = row_of("1", steady(0.7e-3));
  after.rows[2] = row_of("2", steady(2e-3, 1));
  after.rows[3].time = {.seconds = 1.3e-3, .q1 = 0.998e-3, .q3 = 1.31e-3, .runs = 40};
  after.rows[4] = row_of("4", steady(1.1e-3));
  const StudyDiff diff = compare_studies(before, after, {});
  CHECK(diff.pairs[0].judgement == Judgement::slower);
  CHECK(*diff.pairs[0].low > 1);
  CHECK(diff.pairs[0].ratio == doctest::Approx(1.3));
  CHECK(diff.pairs[1].judgement == Judgement::faster);
  CHECK(diff.pairs[2].reason == "1 run, need 5");
  CHECK(!diff.pairs[2].low);
  CHECK(diff.pairs[3].judgement == Judgement::cannot_tell);
  CHECK(!diff.pairs[3].reason.empty());
  CHECK(diff.pairs[4].judgement == Judgement::cannot_tell);
}

TEST_CASE("slower, faster, same: studies in rounds") {
  Study before = rows_of(20, 1e-3), after = rows_of(20, 1e-3);
  after.rows[0] = row_of("0", steady(1.03e-3));
  after.rows[1] = row_of("1", steady(0.97e-3));
  const StudyDiff diff = compare_studies(in_rounds(before), in_rounds(after), {});
  CHECK(diff.pairs[0].judgement == Judgement::slower);
  CHECK(*diff.pairs[0].low > 1);
  CHECK(diff.pairs[0].ratio == doctest::Approx(1.03));
  CHECK(diff.pairs[1].judgement == Judgement::faster);
  CHECK(diff.count(Judgement::same) == 18);
}

TEST_CASE("a shift of all rows is the machine's up to a limit, and what is above it is the build's") {
  const Study before = in_rounds(rows_of(20, 1e-3));
  const StudyDiff within = compare_studies(before, in_rounds(rows_of(20, 1.02e-3)), {});
  CHECK(within.count(Judgement::same) == 20);
  CHECK(within.geometric_mean == doctest::Approx(1.02));
  const StudyDiff beyond = compare_studies(before, in_rounds(rows_of(20, 1.2e-3)), {});
  CHECK(beyond.count(Judgement::slower) == 20);
  CHECK(compare_studies(rows_of(20, 1e-3), rows_of(20, 1.4e-3), {}).count(Judgement::slower) == 20);
}

TEST_CASE("a library's rows tell a slower build from a slower machine") {
  const auto with_library = [](double seconds, double of_library) {
    Study study = rows_of(20, seconds), library = rows_of(20, of_library, "onednn");
    study.rows.insert(study.rows.end(), library.rows.begin(), library.rows.end());
    return study;
  };
  const Study before = with_library(1e-3, 1e-3), rounds = in_rounds(before);
  CHECK(compare_studies(rounds, in_rounds(with_library(1.025e-3, 1e-3)), {}).count(Judgement::slower) == 20);
  CHECK(compare_studies(rounds, in_rounds(with_library(1.1e-3, 1.1e-3)), {}).count(Judgement::same) == 40);
  CHECK(compare_studies(before, with_library(1.3e-3, 1e-3), {}).count(Judgement::slower) == 20);

  Study disturbed = with_library(1e-3, 1e-3);
  disturbed.rows[4] = row_of("4", steady(2e-3));
  disturbed.rows[24] = row_of("4", steady(1.8e-3), "onednn");
  const StudyDiff diff = compare_studies(before, disturbed, {});
  CHECK(diff.count(Judgement::slower) == 0);
  CHECK(diff.count(Judgement::cannot_tell) == 40);

  Study alone = with_library(1e-3, 1e-3);
  alone.rows[4] = row_of("4", steady(1.3e-3));
  CHECK(compare_studies(before, alone, {}).count(Judgement::slower) == 1);
  alone.rows[25] = row_of("5", steady(1.5e-3), "onednn");
  CHECK(compare_studies(before, alone, {}).count(Judgement::slower) == 0);
  alone.rows[25].place.device_name = "another version";
  CHECK(compare_studies(before, alone, {}).count(Judgement::slower) == 2);
}

TEST_CASE("several studies a side: a row that differs from run to run is not named, and 3 % on a quiet one are") {
  constexpr int kRows = 20, kStudies = 5, kTries = 300;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  // Row 0 is quiet; the last five lie 20 % higher in a quarter of the runs, as where buffers lie badly.
  const auto study = [&](double factor) {
    Study made;
    const double drift = 0.01 * normal(random);
    for (int i = 0; i < kRows; ++i) {
      const double noise = (i == 0 ? 0.002 : 0.01) * normal(random);
      const bool high = i >= kRows - 5 && random() % 4 == 0;
      const double level = std::exp(drift + noise) * (high ? 1.2 : 1) * (i == 0 ? factor : 1);
      made.rows.push_back(row_of(std::to_string(i), steady(1e-3 * level)));
    }
    return made;
  };
  const auto side = [&](double factor) {
    std::vector<Study> studies;
    for (int i = 0; i < kStudies; ++i) studies.push_back(study(factor));
    return studies;
  };
  int alarms = 0, found = 0;
  for (int i = 0; i < kTries; ++i) {
    const StudyDiff same = compare_studies(side(1), side(1), DiffOptions{});
    alarms += same.count(Judgement::slower) + same.count(Judgement::faster) > 0;
    found += compare_studies(side(1), side(1.03), DiffOptions{}).pairs[0].judgement == Judgement::slower;
  }
  CHECK(alarms <= kTries / 100);
  CHECK(found >= kTries * 95 / 100);
}

TEST_CASE("several studies a side: runs of all studies are as many as a number holds") {
  Study study;
  perf::Timing timing = perf::summarize({1, 1, 1, 1, 1});
  timing.runs = std::numeric_limits<int>::max();
  study.rows.push_back(row_of("row", timing));
  const std::array two{study, study};
  const StudyDiff diff = compare_studies(two, two, {});
  REQUIRE(diff.pairs.size() == 1);
  CHECK(diff.pairs[0].before->time.runs == std::numeric_limits<int>::max());
}

TEST_CASE("several studies a side: pooled times, rows of all studies alone, and a library's drift") {
  const auto with_library = [](double seconds, double of_library) {
    Study study = rows_of(10, seconds), library = rows_of(10, of_library, "onednn");
    study.rows.insert(study.rows.end(), library.rows.begin(), library.rows.end());
    return study;
  };
  std::vector<Study> before{with_library(1e-3, 1e-3), with_library(1.01e-3, 1.01e-3), with_library(1e-3, 1e-3)};
  std::vector<Study> after{with_library(1.03e-3, 1e-3), with_library(1.03e-3, 1e-3), with_library(1.05e-3, 1.02e-3)};
  before[1].rows.push_back(row_of("only here", steady(1)));
  const StudyDiff diff = compare_studies(before, after, DiffOptions{});
  CHECK(diff.pairs.size() == 20);
  CHECK(diff.pairs[0].before->time.seconds == 1e-3);
  CHECK(diff.pairs[0].before->time.runs == 120);
  CHECK(diff.pairs[0].ratio == doctest::Approx(1.03).epsilon(0.002));
  CHECK(diff.count(Judgement::slower) == 10);
}

TEST_CASE("machines: the same, another, and versions that changed") {
  const MachineEntry one{.cpu = "A", .gpu = "", .date = "", .threads = 2, .facts = {{"compiler", "1"}, {"date", "x"}}};
  MachineEntry other = one;
  other.facts = {{"compiler", "2"}, {"date", "y"}};
  CHECK(machine_difference(one, other).empty());
  CHECK(changed_facts(one, other) == std::vector<std::string>{"compiler: 1 -> 2"});
  MachineEntry zen4 = one, zen5 = one;
  zen4.caches = {{"l1d", 32768}, {"l2", 1048576}};
  zen5.caches = {{"l1d", 49152}, {"l2", 1048576}};
  CHECK(machine_difference(zen4, zen5) == "the machines differ: cache l1d '32.0 KiB' and '48.0 KiB'");
  CHECK(machine_difference(one, zen5).empty());  // an older record
  other.cpu = "B";
  CHECK(machine_difference(one, other) == "the machines differ: CPU 'A' and 'B'");
}
