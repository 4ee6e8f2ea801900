// See compare.h.
#include "bench/diff/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <utility>

#include "bench/common/text.h"
#include "bench/diff/repeated.h"
#include "bench/report/study.h"
#include "perfcounters/timing.h"

namespace gable::bench {
namespace {

/// The key that rows of one case share, whichever device computes it. Its parts are separated by a character that no
/// part contains.
std::string case_key(const Row& row) {
  const Identity& i = row.identity;
  const EpilogueFields epilogue = i.epilogue.value_or(EpilogueFields{});
  const std::string threads = row.place.threads ? std::to_string(*row.place.threads) : "";
  std::string key;
  for (const std::string& part :
       {i.suite, i.name, i.op, i.problem, i.dtype, i.layout, epilogue.activation, report::pair_text(epilogue.max_pool),
        report::pair_text(epilogue.max_pool_stride), report::pair_text(i.tile), row.place.cache, threads,
        std::string(epilogue.bias ? "bias" : "")}) {
    key += part + '\x1f';
  }
  return key;
}

std::string row_key(const Row& row) {
  const Identity& i = row.identity;
  const std::string math = i.math.empty() ? "strict" : i.math;
  std::string key = case_key(row);
  for (const std::string& part : {math, row.place.device, row.called ? row.called->region : std::string()}) {
    key += part + '\x1f';
  }
  return key;
}

void pair_rows(const Study& before, const Study& after, StudyDiff& diff) {
  std::map<std::string, std::deque<const Row*>> waiting;
  for (const Row& row : after.rows) waiting[row_key(row)].push_back(&row);
  std::set<const Row*> paired;
  for (const Row& row : before.rows) {
    std::deque<const Row*>& same = waiting[row_key(row)];
    if (same.empty()) {
      diff.only_before.push_back(&row);
      continue;
    }
    diff.pairs.push_back({.before = &row, .after = same.front()});
    paired.insert(same.front());
    same.pop_front();
  }
  for (const Row& row : after.rows)
    if (!paired.contains(&row)) diff.only_after.push_back(&row);
}

bool is_library(const Row& row) { return report::is_vendor_library(row.place.device); }

/// A library whose name, which holds its version, is the same in both.
bool is_control(const RowPair& pair) {
  return is_library(*pair.before) && pair.before->place.device_name == pair.after->place.device_name;
}

/// Why the times of a pair say nothing about noise, or empty.
std::string no_statistics(const RowPair& pair) {
  const Timing &a = pair.before->time, &b = pair.after->time;
  const int runs = std::min(a.runs, b.runs);
  if (runs < kMinRuns) return fmt::format("{} run{}, need {}", runs, runs == 1 ? "" : "s", kMinRuns);
  if (a.q1 <= 0 || b.q1 <= 0) return "a lower quartile of 0 s";
  return "";
}

/// A pair with its statistics.
struct Judged {
  RowPair* pair;
  Change change;
  Noise noise{};
  double half_width = 0;
  double disturbed = 0;

  double moved() const { return change.moved(noise.drift); }
  /// Whether a row moved far enough to explain a move of its neighbour.
  bool moved_at_all() const { return std::abs(moved()) > half_width / 3; }
};

std::map<DeviceKind, Noise> learn(const std::vector<Judged>& rows, const NoiseLimits& limits) {
  std::map<DeviceKind, Noise> noise;
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu}) {
    std::vector<Change> own, controls;
    for (const Judged& row : rows) {
      if (row.pair->before->place.kind != kind) continue;
      (is_control(*row.pair) ? controls : own).push_back(row.change);
    }
    if (!own.empty() || !controls.empty()) noise[kind] = learn_noise(own, controls, limits);
  }
  return noise;
}

/// How far rows of the case moved in the same direction on the other side: the library's rows for gable's row, and vice
/// versa. The row that moved least counts, twice: a disturbance slows one of them down more than the other.
double disturbance(const Judged& row, const std::vector<const Judged*>& of_case) {
  std::optional<double> least;
  for (const Judged* other : of_case) {
    if (is_library(*other->pair->before) == is_library(*row.pair->before)) continue;
    if (other->pair->before->place.kind != row.pair->before->place.kind) continue;
    const bool alike = other->moved_at_all() && other->moved() * row.moved() > 0;
    least = std::min(least.value_or(HUGE_VAL), alike ? 2 * std::abs(other->moved()) : 0);
  }
  return least.value_or(0);
}

/// By how much intervals are too narrow: unseen_noise(), or the farthest that a control lies outside its own.
double widening(const std::vector<Judged>& rows, DeviceKind kind) {
  double factor = unseen_noise(kind);
  for (const Judged& row : rows) {
    if (!is_control(*row.pair) || row.pair->before->place.kind != kind) continue;
    factor = std::max(factor, 1.001 * std::abs(row.moved()) / (row.half_width + row.disturbed));
  }
  return factor;
}

void judge(const Judged& row, double wider, double same) {
  RowPair& pair = *row.pair;
  const double center = row.change.median - row.noise.drift;
  const double half = wider * (row.half_width + row.disturbed);
  const double margin = std::log1p(same);
  pair.low = std::exp(center - half);
  pair.high = std::exp(center + half);
  if (std::abs(row.moved()) > half) {
    pair.judgement = row.moved() > 0 ? Judgement::slower : Judgement::faster;
  } else if (std::abs(center) + half <= margin) {
    pair.judgement = Judgement::same;
  } else if (row.disturbed > 0) {
    pair.reason = "disturbed: the library's and gable's rows of this case moved alike";
  } else if (std::abs(center) > half) {
    pair.reason = "the median moved, the lower quartile did not";
  } else {
    pair.reason = "the noise is larger than the change";
  }
}

// ---- several studies a side

/// A row's times in all studies of a side; only for rows that are in all of them.
struct Repeats {
  std::vector<const Row*> rows;
};

/// By key and, of rows that are alike, by their order. Keys in the order of the first study.
struct Side {
  std::vector<std::string> order;
  std::map<std::string, Repeats> by_key;
};

Side side_of(std::span<const Study> studies) {
  Side side;
  for (const Study& study : studies) {
    std::map<std::string, int> seen;
    for (const Row& row : study.rows) {
      const std::string plain = row_key(row);
      const std::string key = fmt::format("{}{}", plain, seen[plain]++);
      if (&study == &studies.front()) side.order.push_back(key);
      side.by_key[key].rows.push_back(&row);
    }
  }
  return side;
}

/// The first study's row with the medians of all.
Row pooled_row(const Repeats& repeats) {
  Row row = *repeats.rows.front();
  const auto over_all = [&](double Timing::*field) {
    std::vector<double> values;
    for (const Row* one : repeats.rows) values.push_back(one->time.*field);
    return perf::median(std::move(values));
  };
  row.time.seconds = over_all(&Timing::seconds);
  row.time.q1 = over_all(&Timing::q1);
  row.time.q3 = over_all(&Timing::q3);
  double runs = 0;
  for (const Row* one : repeats.rows) runs += one->time.runs;
  row.time.runs = static_cast<int>(std::min<double>(runs, std::numeric_limits<int>::max()));
  return row;
}

Study pooled_study(const Side& side, std::size_t studies) {
  Study pooled;
  for (const std::string& key : side.order) {
    const Repeats& repeats = side.by_key.at(key);
    if (repeats.rows.size() == studies) pooled.rows.push_back(pooled_row(repeats));
  }
  return pooled;
}

RowTimes times_of(const Side& side, const std::string& key) {
  RowTimes times;
  for (const Row* row : side.by_key.at(key).rows) {
    times.lower.push_back(std::log(std::max(row->time.q1, 1e-18)));
    times.median.push_back(std::log(row->time.seconds));
  }
  return times;
}

void judge(RowPair& pair, const RepeatedChange& change, double same, Repetition repetition) {
  const double half = change.half_width;
  pair.ratio = std::exp(change.lower);
  pair.low = std::exp(change.lower - half);
  pair.high = std::exp(change.lower + half);
  if (std::abs(change.moved()) > half) {
    pair.judgement = change.moved() > 0 ? Judgement::slower : Judgement::faster;
  } else if (std::abs(change.lower) + half <= std::log1p(same)) {
    pair.judgement = Judgement::same;
  } else if (std::abs(change.lower) > half) {
    pair.reason = "the lower quartile moved, the median did not";
  } else {
    const char* what = repetition == Repetition::rounds ? "round" : "study";
    pair.reason = fmt::format("the row's noise from {0} to {0} is larger than the change", what);
  }
}

// ---- rounds of one study a side

std::size_t most_rounds(const Study& study) {
  std::size_t most = 0;
  for (const Row& row : study.rows) most = std::max(most, row.time.rounds.size());
  return most;
}

RowTimes times_of_rounds(const Row& row) {
  RowTimes times;
  for (const TimingRound& round : row.time.rounds) {
    times.lower.push_back(std::log(round.q1));
    times.median.push_back(std::log(round.seconds));
  }
  return times;
}

/// The pairs whose rows have all rounds of their studies.
std::vector<RowPair*> pairs_in_rounds(const Study& before, const Study& after, StudyDiff& diff) {
  const std::size_t old_rounds = most_rounds(before), new_rounds = most_rounds(after);
  std::vector<RowPair*> pairs;
  if (std::min(old_rounds, new_rounds) < kMinRounds) return pairs;
  for (RowPair& pair : diff.pairs) {
    if (pair.before->time.rounds.size() == old_rounds && pair.after->time.rounds.size() == new_rounds)
      pairs.push_back(&pair);
  }
  return pairs;
}

void judge_rounds(const std::vector<RowPair*>& pairs, const DiffOptions& options, StudyDiff& diff) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu}) {
    std::vector<RowPair*> of_kind;
    std::vector<RepeatedRow> rows;
    for (RowPair* pair : pairs) {
      if (pair->before->place.kind != kind) continue;
      of_kind.push_back(pair);
      rows.push_back({times_of_rounds(*pair->before), times_of_rounds(*pair->after), is_control(*pair)});
    }
    if (rows.empty()) continue;
    const RepeatedResult result = compare_repeated(rows, options.noise, Repetition::rounds);
    diff.noise[kind] = result.noise;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      of_kind[i]->reason.clear();
      judge(*of_kind[i], result.rows[i], options.same, Repetition::rounds);
    }
  }
  diff.in_rounds = static_cast<int>(pairs.size());
}

double geometric_mean(const std::vector<RowPair>& pairs) {
  double sum = 0;
  for (const RowPair& pair : pairs) sum += std::log(pair.after->time.seconds / pair.before->time.seconds);
  return pairs.empty() ? 1 : std::exp(sum / static_cast<double>(pairs.size()));
}

}  // namespace

std::string to_string(Judgement judgement) {
  switch (judgement) {
    case Judgement::slower:
      return "slower";
    case Judgement::faster:
      return "faster";
    case Judgement::same:
      return "same";
    case Judgement::cannot_tell:
      return "can't tell";
  }
  return "";
}

int StudyDiff::count(Judgement judgement) const {
  return static_cast<int>(
      std::count_if(pairs.begin(), pairs.end(), [&](const RowPair& pair) { return pair.judgement == judgement; }));
}

StudyDiff compare_studies(const Study& before, const Study& after, const DiffOptions& options) {
  StudyDiff diff;
  pair_rows(before, after, diff);
  std::vector<Judged> rows;
  for (RowPair& pair : diff.pairs) {
    pair.reason = no_statistics(pair);
    if (pair.reason.empty()) rows.push_back({&pair, change_between(pair.before->time, pair.after->time)});
  }
  diff.noise = learn(rows, options.noise);
  for (RowPair& pair : diff.pairs) {
    const auto noise = diff.noise.find(pair.before->place.kind);
    const double drift = noise == diff.noise.end() ? 0 : noise->second.drift;
    pair.ratio = pair.after->time.seconds / pair.before->time.seconds / std::exp(drift);
  }
  std::map<std::string, std::vector<const Judged*>> cases;
  for (Judged& row : rows) {
    row.noise = diff.noise.at(row.pair->before->place.kind);
    row.half_width = half_width(row.change, row.noise, static_cast<int>(rows.size()));
    cases[case_key(*row.pair->before)].push_back(&row);
  }
  for (Judged& row : rows) row.disturbed = disturbance(row, cases[case_key(*row.pair->before)]);
  for (auto& [kind, noise] : diff.noise) noise.widening = widening(rows, kind);
  for (const Judged& row : rows) judge(row, diff.noise.at(row.pair->before->place.kind).widening, options.same);
  judge_rounds(pairs_in_rounds(before, after, diff), options, diff);
  diff.geometric_mean = geometric_mean(diff.pairs);
  return diff;
}

StudyDiff compare_studies(std::span<const Study> before, std::span<const Study> after, const DiffOptions& options) {
  if (std::min(before.size(), after.size()) < kMinStudies)
    return compare_studies(before.front(), after.front(), options);
  const Side old_side = side_of(before), new_side = side_of(after);
  StudyDiff diff;
  diff.pooled = std::make_shared<std::array<Study, 2>>(
      std::array{pooled_study(old_side, before.size()), pooled_study(new_side, after.size())});
  pair_rows((*diff.pooled)[0], (*diff.pooled)[1], diff);
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu}) {
    std::vector<RepeatedRow> rows;
    std::vector<RowPair*> pairs;
    std::map<std::string, int> seen;
    for (RowPair& pair : diff.pairs) {
      const std::string plain = row_key(*pair.before);
      const std::string key = fmt::format("{}{}", plain, seen[plain]++);
      if (pair.before->place.kind != kind) continue;
      rows.push_back({times_of(old_side, key), times_of(new_side, key), is_control(pair)});
      pairs.push_back(&pair);
    }
    if (rows.empty()) continue;
    const RepeatedResult result = compare_repeated(rows, options.noise);
    diff.noise[kind] = result.noise;
    for (std::size_t i = 0; i < rows.size(); ++i) judge(*pairs[i], result.rows[i], options.same, Repetition::studies);
  }
  diff.geometric_mean = geometric_mean(diff.pairs);
  return diff;
}

std::string machine_difference(const MachineEntry& before, const MachineEntry& after) {
  const auto differ = [](const char* what, const std::string& a, const std::string& b) {
    return fmt::format("the machines differ: {} '{}' and '{}'", what, a, b);
  };
  if (before.cpu != after.cpu) return differ("CPU", before.cpu, after.cpu);
  if (before.gpu != after.gpu) return differ("GPU", before.gpu, after.gpu);
  if (before.threads != after.threads)
    return differ("hardware threads", std::to_string(before.threads), std::to_string(after.threads));
  if (const std::string level = different_cache(before, after); !level.empty())
    return differ(("cache " + level).c_str(), bytes_text(before.caches.at(level)), bytes_text(after.caches.at(level)));
  return "";
}

std::vector<std::string> changed_facts(const MachineEntry& before, const MachineEntry& after) {
  const std::map<std::string, std::string> old(before.facts.begin(), before.facts.end());
  std::vector<std::string> lines;
  for (const auto& [name, value] : after.facts) {
    if (name == "date" || name == "command" || name == "clock") continue;
    const auto known = old.find(name);
    if (known != old.end() && known->second != value) lines.push_back(name + ": " + known->second + " -> " + value);
  }
  return lines;
}

}  // namespace gable::bench
