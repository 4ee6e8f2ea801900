// See study_commands.h.
#include "bench/cli/study_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/cli/ceilings_text.h"
#include "bench/cli/report_files.h"
#include "bench/common/files.h"
#include "bench/common/text.h"
#include "bench/measure/judge.h"
#include "bench/measure/recorded_ceilings.h"
#include "bench/record/study_file.h"
#include "bench/record/study_json.h"
#include "bench/report/ascii.h"
#include "bench/report/bandwidth.h"
#include "bench/report/csv.h"
#include "bench/report/insight.h"
#include "bench/report/report.h"
#include "bench/report/study.h"
#include "bench/report/table.h"
#include "bench/report/totals.h"
#include "bench/report/trainium.h"
#include "bench/workloads/problem.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

using nlohmann::json;

// Limits that keep `--quick` within two minutes on two cores and a full study within fifteen, with ceilings and report.
constexpr double kQuickSeconds = 80;
constexpr double kFullSeconds = 780;
constexpr double kQuickGflop = 8;
constexpr double kQuickGigabytes = 0.25;
constexpr double kQuickSecondsEach = 1;
constexpr double kFullSecondsEach = 4;

// The rounds of a study that is written to a record, if its rows take at most kMaxRoundedSeconds in all: as many as
// have enough time each, up to kRounds. A handful of rounds would tell gable diff less than none.
constexpr int kRounds = 16, kFewestRounds = 8;
constexpr double kMinRoundSeconds = 0.03, kMaxRoundedSeconds = 60;

int rounds_of(const StudyOptions& options, double seconds_each, const Console& console) {
  if (options.effort.rounds > 0) return options.effort.rounds;
  const int rounds = static_cast<int>(std::min<double>(kRounds, seconds_each / kMinRoundSeconds));
  if (!console.wants_json() || rounds < kFewestRounds) return 1;
  const std::size_t devices = options.devices.empty() ? default_devices().size() : options.devices.size();
  const std::size_t rows = select(options.selection, false).cases.size() * devices;
  return static_cast<double>(rows) * seconds_each <= kMaxRoundedSeconds ? rounds : 1;
}

StudyPlan bench_plan(const StudyOptions& options, const Console& console) {
  StudyPlan plan;
  plan.measuring.caches = parse_caches(options.effort.cache.empty() ? "warm" : options.effort.cache);
  if (options.effort.seconds > 0) plan.measuring.seconds_each = options.effort.seconds;
  plan.ceilings = options.ceilings;
  plan.measuring.scale = options.ceilings;
  plan.measuring.rounds = rounds_of(options, plan.measuring.seconds_each, console);
  return plan;
}

StudyPlan roofline_plan(const StudyOptions& options) {
  StudyPlan plan;
  MeasureOptions& measuring = plan.measuring;
  measuring.caches = parse_caches(!options.effort.cache.empty() ? options.effort.cache
                                  : options.effort.quick        ? "warm"
                                                                : "both");
  measuring.seconds_each = options.effort.quick ? kQuickSecondsEach : kFullSecondsEach;
  if (options.effort.seconds > 0) measuring.seconds_each = options.effort.seconds;
  measuring.seconds_total = options.effort.quick ? kQuickSeconds : kFullSeconds;
  measuring.max_runs = options.effort.quick ? 20 : 50;
  measuring.scale = true;
  plan.ceilings = true;
  plan.quick_ceilings = options.effort.quick;
  if (!options.effort.quick) return plan;
  plan.mode = fmt::format(
      "quick: batches halved until a layer has at most {} GFLOP, or {} GB where it only moves data, at most {} s a "
      "layer and device, short ceilings",
      kQuickGflop, kQuickGigabytes, measuring.seconds_each);
  measuring.most_moved_bytes = kQuickGigabytes * 1e9;
  plan.little_time = true;
  plan.adjust = [](std::vector<Case>& cases) { cap_work(cases, kQuickGflop, kQuickGigabytes); };
  return plan;
}

// The studies among these files. Files that are no studies are named and left out, unless there is only one. Throws
// Error(invalid_argument) if no study is left.
std::vector<json> read_studies(const std::vector<std::string>& files, Console& console) {
  std::vector<json> studies;
  std::vector<std::string> reasons;
  for (const std::string& file : files) {
    try {
      json study = read_study_file(file);
      if (std::find(studies.begin(), studies.end(), study) != studies.end())
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("study '{}': another file has the same record", printable(file)));
      studies.push_back(std::move(study));
    } catch (const Error& error) {
      reasons.emplace_back(error.what());
    }
  }
  if (studies.empty()) throw Error(ErrorCode::invalid_argument, fmt::format("{}", fmt::join(reasons, "\n")));
  for (const std::string& reason : reasons) console.print("left out: " + reason);
  return studies;
}

/// Whether ceilings from a record can judge the row: an old one does not say how much a GPU's L2 holds, and those of
/// fewer threads are no roofs of it.
bool can_be_judged(const report::Measurement& m, const MachineCeilings& ceilings, int most_threads) {
  if (!m.on_gpu()) return m.place.threads.value_or(0) <= most_threads;
  const GpuCeilings* gpu = ceilings.of_gpu(m.place.gpu);
  return m.place.cache == "cold" || (gpu != nullptr && gpu->l2_bytes > 0);
}

/// Older records name the lowest roof alone: such a row gets all its limits where the lowest is the same one.
void add_limits(std::vector<report::Measurement*>& old, const MachineCeilings& ceilings, const perf::Machine& machine) {
  std::vector<Row> rows(old.size());
  std::transform(old.begin(), old.end(), rows.begin(), [](const report::Measurement* one) -> Row { return *one; });
  judge_rows(rows, ceilings, machine);
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (rows[i].verdict.roof == old[i]->verdict.roof) old[i]->verdict.limits = rows[i].verdict.limits;
  }
}

/// Rows of a study without ceilings get the verdict of those that another study measured on their machine.
void judge_merged(report::Studies& studies) {
  for (std::size_t i = 0; i < studies.machines.size(); ++i) {
    const std::string& tag = studies.machines[i].tag;
    std::vector<CeilingEntry> entries;
    std::vector<RateEntry> rates;
    for (const report::Ceiling& one : studies.ceilings) {
      if (studies.machines[one.machine].tag == tag) entries.push_back(one);
    }
    for (const report::Rate& one : studies.rates) {
      if (studies.machines[one.machine].tag == tag) rates.push_back(one);
    }
    if (entries.empty()) continue;
    int most_threads = 0;
    for (const CeilingEntry& one : entries) most_threads = std::max(most_threads, one.threads.value_or(0));
    const MachineCeilings ceilings = ceilings_of(entries, rates);
    std::vector<Row> rows;
    std::vector<report::Measurement*> measurements, old;
    for (report::Measurement& m : studies.measurements) {
      if (m.machine != i || !can_be_judged(m, ceilings, most_threads)) continue;
      if (!m.verdict.bound.empty() && m.verdict.limits.empty()) old.push_back(&m);
      if (!m.verdict.bound.empty()) continue;
      rows.push_back(m);
      measurements.push_back(&m);
    }
    judge_rows(rows, ceilings, machine_of(studies.machines[i]));
    for (std::size_t row = 0; row < rows.size(); ++row) static_cast<Row&>(*measurements[row]) = rows[row];
    add_limits(old, ceilings, machine_of(studies.machines[i]));
  }
}

void print_tables(const report::Studies& studies, Console& console) {
  console.print(report::table(studies));
  const std::string totals = report::totals_table(studies);
  if (!totals.empty()) console.print(totals);
  const std::string bandwidths = report::bandwidth_table(studies);
  if (!bandwidths.empty()) console.print(bandwidths);
  for (const auto table : {report::trainium_table, report::regime_table, report::naive_table, report::fusion_table}) {
    if (const std::string text = table(studies); !text.empty()) console.print(text);
  }
}

/// One round of a `gable bench` that started this process: its record, and nothing else.
ExitCode bench_round(StudyOptions options, Console& console) {
  options.devices = options.effort.round.devices;
  options.resume = options.ceilings = options.energy = false;
  options.counters = {};
  StudyPlan plan = bench_plan(options, console);
  plan.adjust = [&options](std::vector<Case>& cases) {
    std::vector<Case> some;
    for (const std::size_t index : options.effort.round.cases) some.push_back(cases.at(index));
    cases = std::move(some);
  };
  const MeasuredStudy measured = measure_study(options, plan, console);
  console.emit(to_json(measured.study, measured.run));
  return measured.study.rows.empty() ? kUnsupported : kDone;
}

}  // namespace

ExitCode bench_command(const StudyOptions& given, Console& console) {
  console.check_target();
  StudyOptions options = given;
  if (!options.effort.round.list.empty()) options.selection.text = read_list_text(options.effort.round.list);
  if (!options.selection.text) read_file(options.selection);
  if (!options.effort.round.empty()) return bench_round(options, console);
  if (!options.csv.empty()) check_writable(options.csv);
  check_distinct({options.csv, console.json_file()});
  StudyPlan plan = bench_plan(options, console);
  plan.file = console.json_file();
  const perf::InterruptKeeper interrupts;
  const MeasuredStudy measured = measure_study(options, plan, console);
  const json document = to_json(measured.study, measured.run);
  const report::Studies studies = report::merge({document});
  print_tables(studies, console);
  console.emit(document);
  if (!options.csv.empty()) write_file(options.csv, {report::csv(studies)});  // last: `gable plot` makes it again
  return measured.code;
}

ExitCode ceilings_command(const StudyOptions& options, Console& console) {
  console.check_target();
  const RunEntry run{.machine = perf::describe_machine(), .command = options.line.text};
  const perf::InterruptKeeper interrupts;
  CeilingRounds rounds(ceiling_source(run.machine, options.effort.quick, console), whole_machine());
  std::vector<Row> none;
  const MachineCeilings& ceilings = rounds.judge(none, run.machine);
  print_ceilings(ceilings, console);
  console.emit(to_json(Study{.ceilings = ceiling_entries(ceilings), .rates = rate_entries(ceilings)}, run));
  return kDone;
}

ExitCode roofline_command(const StudyOptions& given, Console& console) {
  console.check_target();
  StudyOptions options = given;
  read_file(options.selection);
  const std::string folder = report_folder(options.out);
  make_report_folder(folder);
  StudyPlan plan = roofline_plan(options);
  plan.file =
      console.json_file().empty() ? (std::filesystem::path(folder) / "study.json").string() : console.json_file();
  if (!plan.mode.empty()) console.print(plan.mode);
  const perf::InterruptKeeper interrupts;
  const MeasuredStudy measured = measure_study(options, plan, console);
  const json document = to_json(measured.study, measured.run);
  print_tables(report::merge({document}), console);
  write_study_report(document, folder, console);
  console.emit(document);
  return measured.code;
}

ExitCode plot_command(const PlotOptions& options, Console& console) {
  report::Studies studies = report::merge(read_studies(options.files, console));
  judge_merged(studies);
  const perf::InterruptKeeper interrupts;  // from here on, an interrupt leaves no half drawn file and no process
  if (options.ascii) console.print(report::ascii_plot(studies));
  if (options.out.empty() || perf::interrupting_signal() != 0) return kDone;
  const std::string folder = report_folder(options.out);
  make_report_folder(folder);
  const std::string no_png = report::write_report(studies, folder);
  print_whereabouts(folder, false, no_png, console);
  return kDone;
}

}  // namespace gable::bench
