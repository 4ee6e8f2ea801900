// See study_run.h.
#include "bench/cli/study_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/cli/resume.h"
#include "bench/cli/round_processes.h"
#include "bench/common/files.h"
#include "bench/counting/op_workload.h"
#include "bench/counting/row_counters.h"
#include "bench/measure/bandwidth.h"
#include "bench/measure/ceiling_rounds.h"
#include "bench/measure/devices.h"
#include "bench/measure/judge.h"
#include "bench/measure/pagerank.h"
#include "bench/measure/recorded_ceilings.h"
#include "bench/record/study_json.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/spread.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/sources/child_process.h"

namespace gable::bench {
namespace {

constexpr double kCounterSeconds = 60;
constexpr double kCountingShare = 0.3;  // of a limited time, where something counts

RowCounters counters_of(const CounterOptions& options) {
  const CounterMode mode = parse_counter_mode(options.mode.empty() ? "analytic" : options.mode);
  std::vector<std::unique_ptr<perf::CounterSource>> sources;
  // Without --counters no source is opened: the libraries that it loads could disturb the timing.
  if (mode != CounterMode::analytic) sources = perf::open_counter_sources(perf::own_executable());
  return {mode, std::move(sources), options.seconds_each > 0 ? options.seconds_each : kCounterSeconds,
          perf::CalibrationCache::of_user()};
}

/// "3 rows left out for lack of time: fused128 bf16 on cuda:0, …"; empty if there are none.
std::string listed(const std::vector<std::string>& rows, const char* what) {
  constexpr std::size_t kMost = 12;
  if (rows.empty()) return "";
  const std::vector<std::string> first(rows.begin(),
                                       rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), kMost)));
  return fmt::format("{} row{} {}: {}{}", rows.size(), rows.size() == 1 ? "" : "s", what, fmt::join(first, ", "),
                     rows.size() > kMost ? fmt::format(" and {} more", rows.size() - kMost) : "");
}

std::string left_out(const std::vector<Refusal>& refused) {
  std::vector<std::string> names;
  for (const Refusal& one : refused) {
    if (one.reason.starts_with(kOutOfTime))
      names.push_back(fmt::format("{} {} on {}", one.name, one.dtype, one.device));
  }
  return listed(names, "left out for lack of time");
}

/// Names the rows that were not counted although something counts on their device.
std::string not_counted(const std::vector<Row>& rows, const RowCounters& counters) {
  std::vector<std::string> names;
  for (const Row& row : rows) {
    if (counters.counts(row.place.kind) && RowCounters::has_no_count(row))
      names.push_back(fmt::format("{} {} on {}", row.identity.name, row.identity.dtype, row.place.device));
  }
  return listed(names, "not counted, W and Q are by their shapes");
}

/// Measures the rows of a study.
class RowMeasurer {
 public:
  using Keep = std::function<void(const RowMeasurer&)>;  ///< called after each row

  RowMeasurer(const StudyOptions& options, const StudyPlan& plan, RowCounters& counters, EnergyMeasurer& energy,
              Console& console, Keep keep)
      : options_(options),
        plan_(plan),
        counters_(counters),
        energy_(energy),
        console_(console),
        keep_(std::move(keep)) {}

  /// Cases whose rows are all here are not measured.
  void resume(std::vector<Row> known) { known_ = KnownRows(std::move(known)); }

  /// Runs the rows of the devices of one kind. `between` is called between them.
  void measure(const std::vector<OpenDevice>& devices, const MeasureOptions& measuring,
               const std::function<void(DeviceKind)>& between) {
    if (devices.empty()) return;
    const Selection selection = selected(devices.front().on_gpu());
    const Progress progress = [&](std::size_t done, std::size_t total, const std::string& what) {
      perf::throw_if_interrupted();
      between(devices.front().kind);
      console_.progress(done, total, what);
    };
    MeasureOptions options = measuring;
    if (counters_.counts(devices.front().kind)) options.share_beside_times = kCountingShare;
    const MeasureJob job{devices, options, outcome_, known_};
    const std::vector<Case> order = plan_.little_time ? spread(selection.cases) : selection.cases;
    const std::size_t first_row = rows_.size();
    measure_cases(order, job,
                  {progress,
                   [this](const Measured& m, double spare) {
                     const std::string helper = perf::own_executable();
                     Row row = counters_.count(m.row, workload_of(m, helper), spare);
                     const double start = steady_seconds();
                     energy_.measure(row, m.runner->subject());
                     const double seconds = steady_seconds() - start;
                     known_.forget(row.identity, row.place);
                     add(std::move(row));
                     return seconds;
                   },
                   [this](Row row) { add(std::move(row)); }});
    sort_as(selection.cases, first_row);
    const RowCallbacks callbacks{progress, [this](Row row) { add(std::move(row)); }};
    measure_bandwidths(selection.bandwidths, job, callbacks);
    measure_graphs(selection.graphs, job, callbacks);
    console_.finish_progress();
  }

  /// Measured or kept so far.
  const std::vector<Row>& rows() const { return rows_; }
  /// With the known rows that no case has asked for yet.
  std::vector<Row> rows_and_known() const {
    std::vector<Row> rows = rows_;
    for (Row& row : known_.rest()) rows.push_back(std::move(row));
    return rows;
  }
  std::size_t kept() const { return known_.taken(); }
  const Outcome& outcome() const { return outcome_; }

 private:
  void add(Row row) {
    rows_.push_back(std::move(row));
    keep_(*this);
  }

  /// Puts the rows from `first_row` on into the order of the cases.
  void sort_as(const std::vector<Case>& cases, std::size_t first_row) {
    const auto key = [](const Identity& i) {
      return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", i.suite, i.name, i.op, i.problem, i.dtype, i.math);
    };
    std::map<std::string, std::size_t> places;
    for (const Case& one : cases) places.emplace(key(identity_of(one)), places.size());
    std::stable_sort(rows_.begin() + static_cast<std::ptrdiff_t>(first_row), rows_.end(),
                     [&](const Row& a, const Row& b) { return places[key(a.identity)] < places[key(b.identity)]; });
  }

  Selection selected(bool gpu) {
    Selection selection = select(options_.selection, gpu);
    if (plan_.adjust) plan_.adjust(selection.cases);
    if (!options_.effort.round.empty()) {
      selection.bandwidths.clear();
      selection.graphs.clear();
      selection.repeated.clear();
    }
    if (!selection.repeated.empty()) {
      console_.print(fmt::format("not repeated, since --max-batch made them equal to others: {}",
                                 fmt::join(selection.repeated, ", ")));
    }
    outcome_.malformed = selection.malformed;
    outcome_.add(selection.refused);
    return selection;
  }

  const StudyOptions& options_;
  const StudyPlan& plan_;
  RowCounters& counters_;
  EnergyMeasurer& energy_;
  Console& console_;
  Keep keep_;
  Outcome outcome_;
  KnownRows known_;
  std::vector<Row> rows_;
};

std::vector<OpenDevice> of_kind(const std::vector<OpenDevice>& devices, DeviceKind kind) {
  std::vector<OpenDevice> some;
  for (const OpenDevice& device : devices) {
    if (device.kind == kind) some.push_back(device);
  }
  return some;
}

/// Called before anything runs, so that the device is idle when idle power is measured.
void prepare_energy(EnergyMeasurer& energy, const std::vector<OpenDevice>& devices) {
  for (const OpenDevice& device : devices)
    energy.prepare(device.on_gpu() ? std::optional(device.device.info().memory.index) : std::nullopt);
}

CeilingCallbacks ceiling_callbacks(Console& console) {
  return {[&console](std::size_t done, std::size_t total, const std::string& what) {
            perf::throw_if_interrupted();
            console.progress(done, total, what);
          },
          [&console](const std::string& line) {
            console.finish_progress();
            console.print(line);
          }};
}

/// Writes the rows so far to a file between rows, so that a killed study keeps them. Takes at most a twentieth of the
/// time.
class RowKeeper {
 public:
  /// `file` may be empty: then nothing is written. `ceilings` may be null.
  RowKeeper(std::string file, const RunEntry& run, const MachineCeilings* ceilings, Console& console)
      : file_(std::move(file)), run_(run), ceilings_(ceilings), console_(console) {}

  void keep(const RowMeasurer& measurer) {
    const auto start = Clock::now();
    if (file_.empty() || start < next_) return;
    const MachineCeilings roofs = ceilings_ != nullptr ? *ceilings_ : MachineCeilings{};
    std::vector<Row> rows = measurer.rows_and_known();
    judge_rows(rows, roofs, run_.machine);
    const Study study{ceiling_entries(roofs), rate_entries(roofs), std::move(rows), measurer.outcome().refused};
    try {
      write_file(file_, {json_text(to_json(study, run_))});
    } catch (const Error& error) {
      if (!failed_) console_.print(fmt::format("the rows so far are not kept: {}", error.what()));
      failed_ = true;  // it is tried again; Console::emit() fails in the end
    }
    const auto end = Clock::now();
    next_ = end + std::max<Clock::duration>(std::chrono::seconds(1), 20 * (end - start));
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string file_;
  const RunEntry& run_;
  const MachineCeilings* ceilings_;
  Console& console_;
  Clock::time_point next_{};
  bool failed_ = false;
};

/// The study to go on with; nothing without --resume or where there is no such file yet.
std::optional<ReadStudy> resumed_study(const StudyOptions& options, const StudyPlan& plan, const RunEntry& run,
                                       Console& console) {
  if (!options.resume) return std::nullopt;
  if (plan.file.empty())
    throw Error(ErrorCode::invalid_argument, "--resume: goes on with the file of --json; name it, as in --json a.json");
  std::optional<ReadStudy> before = study_to_resume(plan.file, run);
  console.print(before ? fmt::format("resuming '{}' with its {} rows", plan.file, before->study.rows.size())
                       : fmt::format("nothing to resume: there is no '{}' yet", plan.file));
  return before;
}

/// "auto?only=cpu,onednn" is two devices here, though open() takes it for one. Words about that; empty: there is none.
std::string words_on_only(const std::vector<std::string>& devices) {
  for (std::size_t i = 0; i + 1 < devices.size(); ++i) {
    const std::string &one = devices[i], &next = devices[i + 1];
    const std::size_t only = one.find("only=");
    const bool could_go_on = only != std::string::npos && one.find('&', only) == std::string::npos &&
                             one.find(next, only) == std::string::npos && next.find('?') == std::string::npos &&
                             !next.starts_with("auto");
    if (could_go_on)
      return fmt::format("--device: '{0}' and '{1}' are two devices; one that chooses between them is '{0}+{1}'", one,
                         next);
  }
  return "";
}

void add_to_mode(RunEntry& run, const std::string& text) { run.mode += (run.mode.empty() ? "" : "; ") + text; }

/// Says what a reader of the record has to know too.
void note(RunEntry& run, Console& console, const std::string& text) {
  console.print(text);
  add_to_mode(run, text);
}

/// The rows of all devices; devices of both kinds share the time. Throws perf::Interrupted if a signal arrives.
std::vector<Row> rows_of(RowMeasurer& measurer, const std::vector<OpenDevice>& devices, const MeasureOptions& measuring,
                         const std::function<void(DeviceKind)>& between) {
  const std::vector<OpenDevice> cpus = of_kind(devices, DeviceKind::cpu), gpus = of_kind(devices, DeviceKind::gpu);
  MeasureOptions of_one_kind = measuring;
  if (!cpus.empty() && !gpus.empty()) of_one_kind.seconds_total /= 2;
  measurer.measure(cpus, of_one_kind, between);
  measurer.measure(gpus, of_one_kind, between);
  return measurer.rows();
}

}  // namespace

std::vector<perf::Cache> parse_caches(const std::string& name) {
  using enum perf::Cache;
  if (name == "warm") return {warm};
  if (name == "cold") return {cold};
  if (name == "both") return {warm, cold};
  throw Error(ErrorCode::invalid_argument, fmt::format("--cache '{}': must be warm, cold or both", name));
}

CeilingSource ceiling_source(const perf::Machine& machine, bool quick, Console& console, EnergyMeasurer* energy) {
  const auto measure = [&machine, quick, &console, energy](const CeilingRound& round) {
    CeilingCallbacks callbacks = ceiling_callbacks(console);
    if (energy != nullptr && energy->wanted()) {
      callbacks.per_joule = [energy](std::optional<int> gpu) -> CeilingCallbacks::PerJoule {
        if (!energy->available(gpu)) return {};
        return [energy, gpu](const std::function<double()>& work) { return energy->per_joule(gpu, work); };
      };
    }
    MachineCeilings ceilings =
        measure_ceilings(machine, round.scope, quick || round.known != nullptr, callbacks, round.known);
    console.finish_progress();
    return ceilings;
  };
  return {measure, steady_seconds};
}

MeasuredStudy measure_study(const StudyOptions& options, const StudyPlan& plan, Console& console) {
  MeasuredStudy measured;
  measured.run = {.machine = perf::describe_machine(), .command = options.line.text, .mode = plan.mode};
  RowCounters counters = counters_of(options.counters);
  select(options.selection, false);  // reports misuse before any device is opened
  const std::optional<ReadStudy> before = resumed_study(options, plan, measured.run, console);
  std::vector<std::string> closed;
  const std::vector<OpenDevice> devices = open_asked(options.devices, options.threads, closed);
  if (const std::string words = words_on_only(options.devices); !words.empty() && options.effort.round.empty())
    console.print(words);
  for (const std::string& line : closed) note(measured.run, console, line);
  counters.require_sources(kinds_of(devices));
  std::optional<CeilingRounds> ceilings;
  EnergyMeasurer energy = options.energy ? EnergyMeasurer(open_energy()) : EnergyMeasurer();
  prepare_energy(energy, devices);
  const CeilingSource source = ceiling_source(measured.run.machine, plan.quick_ceilings, console, &energy);
  if (plan.ceilings) ceilings.emplace(source, scope_of(devices));
  if (ceilings && before) ceilings->add_recorded(ceilings_of(before->study.ceilings, before->study.rates));
  const auto between = [&](DeviceKind kind) {
    if (ceilings) ceilings->between(kind);
  };

  RowKeeper keeper(plan.file, measured.run, ceilings ? &ceilings->so_far() : nullptr, console);
  RowMeasurer measurer(options, plan, counters, energy, console, [&](const RowMeasurer& rows) { keeper.keep(rows); });
  if (before) measurer.resume(before->study.rows);
  std::vector<Row> rows;
  try {
    rows = rows_of(measurer, devices, plan.measuring, between);
  } catch (const perf::Interrupted&) {
    rows = measurer.rows_and_known();
    note(measured.run, console, fmt::format("interrupted: {} rows were measured and are kept", rows.size()));
  }
  if (options.effort.round.empty()) measure_rounds(options, plan.measuring, rows, console);
  if (before) add_to_mode(measured.run, resumed_text(measurer.kept(), *before));
  for (const std::string& line : counters.summary()) console.print(line);
  for (const std::string& line : energy.summary()) console.print(line);
  measured.run.energy = energy.entries();

  const MachineCeilings roofs = ceilings ? ceilings->judge(rows, measured.run.machine) : MachineCeilings{};
  if (!ceilings) judge_rows(rows, roofs, measured.run.machine);
  measured.study = {ceiling_entries(roofs), rate_entries(roofs), std::move(rows), measurer.outcome().refused};
  for (const std::string& missing : {left_out(measured.study.refused), not_counted(measured.study.rows, counters)}) {
    if (!missing.empty()) note(measured.run, console, missing);
  }
  measured.run.counters = counters.entry();
  measured.code = measurer.outcome().exit_code();
  if (measured.code == kDone && counters.gave_nothing()) measured.code = kUnsupported;
  return measured;
}

}  // namespace gable::bench
