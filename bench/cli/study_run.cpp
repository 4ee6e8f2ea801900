// See study_run.h.
#include "bench/cli/study_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "bench/counting/op_workload.h"
#include "bench/counting/row_counters.h"
#include "bench/measure/bandwidth.h"
#include "bench/measure/devices.h"
#include "bench/measure/judge.h"
#include "bench/measure/pagerank.h"
#include "bench/record/study_json.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/sources/child_process.h"

namespace gable::bench {
namespace {

constexpr double kCounterSeconds = 60;

RowCounters counters_of(const CounterOptions& options) {
  const CounterMode mode = parse_counter_mode(options.mode.empty() ? "analytic" : options.mode);
  std::vector<std::unique_ptr<perf::CounterSource>> sources;
  // Without --counters no source is opened: the libraries that it loads could disturb the timing.
  if (mode != CounterMode::analytic) sources = perf::open_counter_sources(perf::own_executable());
  return RowCounters(mode, std::move(sources), options.seconds_each > 0 ? options.seconds_each : kCounterSeconds);
}

/// Measures the rows of a study.
class RowMeasurer {
 public:
  using Keep = std::function<void(const std::vector<Row>&, const Outcome&)>;  ///< called after each row

  RowMeasurer(const StudyOptions& options, const StudyPlan& plan, RowCounters& counters, Console& console, Keep keep)
      : options_(options), plan_(plan), counters_(counters), console_(console), keep_(std::move(keep)) {}

  /// Runs the rows of the devices of one kind.
  void measure(const std::vector<OpenDevice>& devices, const MeasureOptions& measuring) {
    if (devices.empty()) return;
    const Selection selection = selected(devices.front().on_gpu());
    const Progress progress = [this](std::size_t done, std::size_t total, const std::string& what) {
      perf::throw_if_interrupted();
      console_.progress(done, total, what);
    };
    const MeasureJob job{devices, measuring, outcome_};
    measure_cases(selection.cases, job, {progress, [this](const Measured& m) {
                                           const std::string helper = perf::own_executable();
                                           add(counters_.count(m.row, workload_of(m, helper)));
                                         }});
    const RowCallbacks callbacks{progress, [this](Row row) { add(std::move(row)); }};
    measure_bandwidths(selection.bandwidths, job, callbacks);
    measure_graphs(selection.graphs, job, callbacks);
    console_.finish_progress();
  }

  std::vector<Row>& rows() { return rows_; }
  const Outcome& outcome() const { return outcome_; }

 private:
  void add(Row row) {
    rows_.push_back(std::move(row));
    keep_(rows_, outcome_);
  }

  Selection selected(bool gpu) {
    Selection selection = select(options_.selection, gpu);
    if (plan_.adjust) plan_.adjust(selection.cases);
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
  Console& console_;
  Keep keep_;
  Outcome outcome_;
  std::vector<Row> rows_;
};

std::vector<OpenDevice> of_kind(const std::vector<OpenDevice>& devices, DeviceKind kind) {
  std::vector<OpenDevice> some;
  for (const OpenDevice& device : devices) {
    if (device.kind == kind) some.push_back(device);
  }
  return some;
}

/// Ceilings are measured before the rows.
class Ceilings {
 public:
  Ceilings(const perf::Machine& machine, CeilingScope scope, const StudyPlan& plan, Console& console)
      : machine_(machine), scope_(std::move(scope)), plan_(plan), console_(console) {
    if (plan_.ceilings) ceilings_ = measured();
  }

  const MachineCeilings& so_far() const { return ceilings_; }

  const MachineCeilings& judge(std::vector<Row>& rows) {
    if (perf::interrupting_signal() != 0) {
      judge_rows(rows, ceilings_, machine_);
      return ceilings_;
    }
    judge_or_measure_again(rows, ceilings_, machine_, [this] { return measured(); });
    return ceilings_;
  }

 private:
  MachineCeilings measured() {
    MachineCeilings ceilings = measure_ceilings(machine_, scope_, plan_.quick_ceilings, ceiling_callbacks(console_));
    console_.finish_progress();
    return ceilings;
  }

  const perf::Machine& machine_;
  CeilingScope scope_;
  const StudyPlan& plan_;
  Console& console_;
  MachineCeilings ceilings_;
};

/// Writes the rows so far to the file of --json, so that a study that is killed leaves them there. Takes a twentieth of
/// the time at most, between rows.
class RowKeeper {
 public:
  RowKeeper(const RunEntry& run, const Ceilings& ceilings, const Console& console)
      : run_(run), ceilings_(ceilings), console_(console) {}

  void keep(std::vector<Row> rows, const Outcome& outcome) {
    const auto start = Clock::now();
    if (!console_.writes_file() || start < next_) return;
    const MachineCeilings& roofs = ceilings_.so_far();
    judge_rows(rows, roofs, run_.machine);
    console_.save(to_json(Study{ceiling_entries(roofs), rate_entries(roofs), std::move(rows), outcome.refused}, run_));
    const auto end = Clock::now();
    next_ = end + std::max<Clock::duration>(std::chrono::seconds(1), 20 * (end - start));
  }

 private:
  using Clock = std::chrono::steady_clock;

  const RunEntry& run_;
  const Ceilings& ceilings_;
  const Console& console_;
  Clock::time_point next_{};
};

}  // namespace

std::vector<perf::Cache> parse_caches(const std::string& name) {
  using enum perf::Cache;
  if (name == "warm") return {warm};
  if (name == "cold") return {cold};
  if (name == "both") return {warm, cold};
  throw Error(ErrorCode::invalid_argument, fmt::format("--cache '{}': must be warm, cold or both", name));
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

MeasuredStudy measure_study(const StudyOptions& options, const StudyPlan& plan, Console& console) {
  MeasuredStudy measured;
  measured.run = {.machine = perf::describe_machine(), .command = options.command, .mode = plan.mode};
  RowCounters counters = counters_of(options.counters);
  select(options.selection, false);  // reports misuse before any device is opened
  const std::vector<OpenDevice> devices =
      open_devices(options.devices.empty() ? default_devices() : options.devices, options.threads);
  counters.require_sources(kinds_of(devices));
  Ceilings ceilings(measured.run.machine, scope_of(devices), plan, console);

  const std::vector<OpenDevice> cpus = of_kind(devices, DeviceKind::cpu);
  const std::vector<OpenDevice> gpus = of_kind(devices, DeviceKind::gpu);
  MeasureOptions measuring = plan.measuring;
  if (!cpus.empty() && !gpus.empty()) measuring.seconds_total /= 2;
  RowKeeper keeper(measured.run, ceilings, console);
  RowMeasurer measurer(options, plan, counters, console,
                       [&](const std::vector<Row>& rows, const Outcome& outcome) { keeper.keep(rows, outcome); });
  try {
    measurer.measure(cpus, measuring);
    measurer.measure(gpus, measuring);
  } catch (const perf::Interrupted&) {
    console.print(fmt::format("interrupted: {} rows were measured and are kept", measurer.rows().size()));
  }
  for (const std::string& line : counters.summary()) console.print(line);

  const MachineCeilings& roofs = ceilings.judge(measurer.rows());
  measured.study = {ceiling_entries(roofs), rate_entries(roofs), std::move(measurer.rows()),
                    measurer.outcome().refused};
  measured.run.counters = counters.entry();
  measured.code = measurer.outcome().exit_code();
  if (measured.code == kDone && counters.gave_nothing()) measured.code = kUnsupported;
  return measured;
}

}  // namespace gable::bench
