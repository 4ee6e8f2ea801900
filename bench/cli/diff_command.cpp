// See diff_command.h.
#include "bench/cli/diff_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/common/text.h"
#include "bench/diff/repeated.h"
#include "bench/diff/timed_parts.h"
#include "bench/record/study_file.h"

namespace gable::bench {
namespace {

using nlohmann::json;

constexpr double kLargeDrift = 0.03;
constexpr std::array kJudgements = {Judgement::slower, Judgement::faster, Judgement::cannot_tell, Judgement::same};

// ---- for people ----

std::string name_of(const Row& row) {
  const Identity& i = row.identity;
  std::string text = i.suite.empty() ? i.name : i.suite + " " + i.name;
  if (!i.dtype.empty()) text += " " + i.dtype;
  if (!i.math.empty() && i.math != "strict") text += " " + i.math;
  if (i.epilogue && i.epilogue->max_pool && i.name.find("+pool") == std::string::npos) text += " +pool";
  if (row.place.cache != "warm") text += " " + row.place.cache;
  return printable(text + " " + row.place.device);
}

std::string kernel_text(const RowPair& pair) {
  const std::string before = short_kernel_name(pair.before->place.kernel);
  return printable(pair.kernel_changed() ? before + " -> " + short_kernel_name(pair.after->place.kernel) : before);
}

using Line = std::array<std::string, 7>;

Line line_of(const RowPair& pair) {
  return {to_string(pair.judgement),
          name_of(*pair.before),
          seconds_text(pair.before->time.seconds),
          seconds_text(pair.after->time.seconds),
          fmt::format("{:.3f}", pair.ratio),
          pair.low ? fmt::format("{:.3f} .. {:.3f}", *pair.low, *pair.high) : "-",
          kernel_text(pair) + (pair.reason.empty() ? "" : "; " + pair.reason)};
}

void print_lines(const std::vector<Line>& lines, Console& console) {
  std::array<std::size_t, 7> widths{};
  for (const Line& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], count_code_points(line[i]));
  for (const Line& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i)
      text += line[i] + std::string(widths[i] - count_code_points(line[i]) + 2, ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    console.print(text);
  }
}

/// Slower rows first, then faster ones, those that can't be told and the same; each by how far they moved.
std::vector<const RowPair*> in_order(const StudyDiff& diff) {
  std::vector<const RowPair*> order;
  for (const RowPair& pair : diff.pairs) order.push_back(&pair);
  const auto rank = [](const RowPair& pair) {
    const auto at = std::find(kJudgements.begin(), kJudgements.end(), pair.judgement) - kJudgements.begin();
    return std::pair(at, -std::abs(std::log(pair.ratio)));
  };
  std::stable_sort(order.begin(), order.end(), [&](const RowPair* a, const RowPair* b) { return rank(*a) < rank(*b); });
  return order;
}

void print_only(const char* which, const std::vector<const Row*>& rows, Console& console) {
  if (rows.empty()) return;
  console.print(fmt::format("{} rows only in the {} study:", rows.size(), which));
  for (const Row* row : rows) console.print("  " + name_of(*row));
}

std::string noise_text(DeviceKind kind, const Noise& noise) {
  const std::string where = kind == DeviceKind::gpu ? "GPU" : "CPU";
  if (noise.rows == 0)
    return fmt::format("{}: fewer than {} rows to learn the noise from; {:.2f} % between runs is assumed, and no drift",
                       where, kMinRows, 100 * noise.between);
  return fmt::format(
      "{}: the machine's drift is {:+.2f} % (standard error {:.2f} %), the noise between runs {:.2f} %, "
      "from {} rows",
      where, 100 * std::expm1(noise.drift), 100 * noise.drift_error, 100 * noise.between, noise.rows);
}

/// What gives the rows without rounds rounds: a round has its share of the seconds, into which a call must fit. Empty:
/// all rows are of a program, which gable measure runs once, or of callables.
std::string how_to_have_rounds(const StudyDiff& diff) {
  constexpr int kRounds = 16;
  double longest = 0;
  for (const RowPair& pair : diff.pairs) {
    if (pair.before->called || pair.before->identity.op == "callable") continue;
    const Timing &before = pair.before->time, &after = pair.after->time;
    if (std::min(before.rounds.size(), after.rounds.size()) >= static_cast<std::size_t>(kMinRounds)) continue;
    longest = std::max({longest, before.seconds, after.seconds});
  }
  if (longest == 0) return "";
  return fmt::format("measure with gable bench --rounds {} --seconds {:.0f}, or ", kRounds,
                     std::ceil(std::max(1.0, kRounds * longest)));
}

void print(const StudyDiff& diff, Console& console) {
  std::vector<Line> lines{{"", "row", "old T", "new T", "new/old", "interval", "kernel"}};
  for (const RowPair* pair : in_order(diff)) lines.push_back(line_of(*pair));
  print_lines(lines, console);
  print_only("old", diff.only_before, console);
  print_only("new", diff.only_after, console);
  console.print("");
  const int without = static_cast<int>(diff.pairs.size()) - diff.in_rounds;
  if (!diff.pooled && without > 0)
    console.print(fmt::format(
        "{} of {} rows have fewer than {} rounds: how far they lie apart from run to run is guessed from other "
        "rows, and their intervals are wide; {}give several studies a side (old1.json,old2.json,… "
        "new1.json,new2.json,…)",
        without, diff.pairs.size(), kMinRounds, how_to_have_rounds(diff)));
  for (const auto& [kind, noise] : diff.noise) {
    console.print(noise_text(kind, noise));
    if (std::abs(noise.drift) > kLargeDrift)
      console.print("a change of all rows would look like this drift, unless a library's rows are among them");
    if (noise.widening > unseen_noise(kind))
      console.print(
          fmt::format("a library's rows, which did not change, moved: intervals without rounds are {:.1f} times "
                      "as wide",
                      noise.widening / unseen_noise(kind)));
  }
  const auto changed =
      std::count_if(diff.pairs.begin(), diff.pairs.end(), [](const RowPair& p) { return p.kernel_changed(); });
  console.print(
      fmt::format("{} rows: {} slower, {} faster, {} can't tell, {} same; {} with another kernel; "
                  "new/old in the geometric mean {:.3f}, drift included",
                  diff.pairs.size(), diff.count(Judgement::slower), diff.count(Judgement::faster),
                  diff.count(Judgement::cannot_tell), diff.count(Judgement::same), changed, diff.geometric_mean));
}

// ---- for tools ----

json identity_json(const Row& row) {
  const Identity& i = row.identity;
  json entry{{"suite", i.suite},
             {"name", i.name},
             {"op", i.op},
             {"problem", i.problem},
             {"dtype", i.dtype},
             {"layout", i.layout.empty() ? json() : json(i.layout)},
             {"math", i.math.empty() ? json() : json(i.math)},
             {"device", row.place.device},
             {"cache", row.place.cache},
             {"threads", row.place.threads ? json(*row.place.threads) : json()}};
  if (i.epilogue) {
    entry["epilogue"] = {{"bias", i.epilogue->bias}, {"activation", i.epilogue->activation}, {"max_pool", json()}};
    if (i.epilogue->max_pool) entry["epilogue"]["max_pool"] = *i.epilogue->max_pool;
  }
  return entry;
}

json side_json(const Row& row) {
  const Timing& time = row.time;
  return {
      {"seconds", time.seconds}, {"q1", time.q1}, {"q3", time.q3}, {"runs", time.runs}, {"kernel", row.place.kernel}};
}

json pair_json(const RowPair& pair) {
  json entry = identity_json(*pair.before);
  entry["old"] = side_json(*pair.before);
  entry["new"] = side_json(*pair.after);
  entry["verdict"] = to_string(pair.judgement);
  entry["ratio"] = pair.ratio;
  entry["low"] = pair.low ? json(*pair.low) : json();
  entry["high"] = pair.high ? json(*pair.high) : json();
  entry["kernel_changed"] = pair.kernel_changed();
  entry["reason"] = pair.reason.empty() ? json() : json(pair.reason);
  return entry;
}

json only_json(const std::vector<const Row*>& rows) {
  json list = json::array();
  for (const Row* row : rows) list.push_back(identity_json(*row));
  return list;
}

json diff_json(const StudyDiff& diff) {
  json document{{"schema_version", 1}, {"rows", json::array()}, {"noise", json::array()}};
  for (const RowPair& pair : diff.pairs) document["rows"].push_back(pair_json(pair));
  for (const auto& [kind, noise] : diff.noise)
    document["noise"].push_back({{"device_kind", std::string(to_string(kind))},
                                 {"drift", std::exp(noise.drift)},
                                 {"drift_error", noise.drift_error},
                                 {"between", noise.between},
                                 {"widening", noise.widening},
                                 {"rows", noise.rows}});
  document["only_old"] = only_json(diff.only_before);
  document["only_new"] = only_json(diff.only_after);
  document["summary"] = {{"rows", diff.pairs.size()},
                         {"in_rounds", diff.in_rounds},
                         {"slower", diff.count(Judgement::slower)},
                         {"faster", diff.count(Judgement::faster)},
                         {"same", diff.count(Judgement::same)},
                         {"cannot_tell", diff.count(Judgement::cannot_tell)},
                         {"geometric_mean", diff.geometric_mean},
                         {"family_error", kFamilyError}};
  return document;
}

}  // namespace

namespace {

/// The studies of one side; the machine is the first one's.
struct Side {
  MachineEntry machine;
  std::vector<Study> studies;
};

Side read_side(const std::vector<std::string>& files, bool allow_other_machine) {
  Side side;
  for (const std::string& file : files) {
    ReadStudy read = study_from_json(read_study_file(file));
    if (side.studies.empty()) side.machine = read.machine;
    const std::string other = machine_difference(side.machine, read.machine);
    if (!other.empty() && !allow_other_machine)
      throw Error(ErrorCode::invalid_argument,
                  printable(file + ": " + other) + "; --allow-other-machine compares them all the same");
    add_timed_parts(read.study);
    side.studies.push_back(std::move(read.study));
  }
  return side;
}

}  // namespace

ExitCode diff_command(const DiffArguments& arguments, Console& console) {
  if ((arguments.before.size() < 2) != (arguments.after.size() < 2))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} old and {} new studies: give one of each, or several of each, with commas between",
                            arguments.before.size(), arguments.after.size()));
  const Side before = read_side(arguments.before, arguments.allow_other_machine),
             after = read_side(arguments.after, arguments.allow_other_machine);
  const std::string other_machine = machine_difference(before.machine, after.machine);
  if (!other_machine.empty() && !arguments.allow_other_machine)
    throw Error(ErrorCode::invalid_argument,
                printable(other_machine) + "; --allow-other-machine compares them all the same");
  const StudyDiff diff = compare_studies(before.studies, after.studies, arguments.options);
  if (diff.pairs.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("no row of '{}' ({} rows) is also in '{}' ({} rows): suite, name, problem, dtype, device, "
                            "cache and threads must be the same",
                            fmt::join(arguments.before, ","), before.studies.front().rows.size(),
                            fmt::join(arguments.after, ","), after.studies.front().rows.size()));
  console.check_target();
  if (!other_machine.empty()) console.print(printable(other_machine));
  for (const std::string& fact : changed_facts(before.machine, after.machine)) console.print(printable(fact));
  print(diff, console);
  json document = diff_json(diff);
  document["old"] = fmt::format("{}", fmt::join(arguments.before, ","));
  document["new"] = fmt::format("{}", fmt::join(arguments.after, ","));
  document["studies"] = {before.studies.size(), after.studies.size()};
  console.emit(document);
  return diff.count(Judgement::slower) > 0 ? kCheckFailed : kDone;
}

}  // namespace gable::bench
