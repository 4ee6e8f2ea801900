// See studies.h. A study is measured in two parts, since GPUs and CPUs may have batches of their own.
#include "bench/measure/studies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "bench/cli/files.h"
#include "bench/counting/counting.h"
#include "bench/measure/ceilings.h"
#include "bench/measure/measure.h"
#include "bench/record/record.h"
#include "bench/report/bandwidth.h"
#include "bench/report/report.h"
#include "bench/report/schema.h"
#include "bench/report/study.h"
#include "bench/report/table.h"
#include "bench/report/trainium.h"
#include "bench/workloads/bandwidth.h"
#include "perfcounters/sources/child_process.h"

namespace gable::bench {
namespace {

using nlohmann::json;

// What keeps `--quick` within two minutes on two cores and a full study within fifteen, ceilings and report included.
constexpr double kQuickSeconds = 85;
constexpr double kFullSeconds = 780;
constexpr double kQuickGflop = 8;
constexpr double kQuickGigabytes = 0.25;
constexpr double kQuickSecondsEach = 1;
constexpr double kFullSecondsEach = 4;
constexpr double kBelievablePercent = 105;  ///< of a roof
constexpr double kCounterSeconds = 60;

std::vector<perf::Cache> caches_of(const std::string& name) {
  using enum perf::Cache;
  if (name == "warm") return {warm};
  if (name == "cold") return {cold};
  if (name == "both") return {warm, cold};
  throw Error(ErrorCode::invalid_argument, fmt::format("--cache '{}': must be warm, cold or both", name));
}

std::vector<std::string> devices_of(const StudyOptions& options) {
  return options.devices.empty() ? default_devices() : options.devices;
}

/// A study as it grows.
struct Study {
  json measurements = json::array();
  Outcome outcome;
  json counters;           ///< null: none were asked for
  bool uncounted = false;  ///< a kind of source was asked for, and it gave nothing for any row

  ExitCode exit_code() const {
    const ExitCode code = outcome.exit_code();
    return code == kDone && uncounted ? kUnsupported : code;
  }
};

using Adjust = std::function<void(std::vector<Case>&)>;

void measure_selection(const StudyOptions& options, const MeasureOptions& measuring,
                       const std::vector<OpenDevice>& devices, const Adjust& adjust, Counting& counting, Study& study,
                       Console& console) {
  if (devices.empty()) return;
  Selection selection = select(options.selection, devices.front().gpu);
  if (adjust) adjust(selection.cases);
  if (!selection.repeated.empty()) {
    console.print(fmt::format("not repeated, since --max-batch made them equal to others: {}",
                              fmt::join(selection.repeated, ", ")));
  }
  study.outcome.malformed = selection.malformed;
  study.outcome.refused.insert(study.outcome.refused.end(), selection.refused.begin(), selection.refused.end());
  const MeasureCallbacks callbacks{
      [&](std::size_t done, std::size_t total, const std::string& what) { console.progress(done, total, what); },
      [&](const Measured& m) {
        study.measurements.push_back(measurement_record(*m.one, *m.runner, m.timing, m.cache));
        counting.count(m, study.measurements.back());
      }};
  measure_cases(selection.cases, devices, measuring, study.outcome, callbacks);
  measure_bandwidths(selection.bandwidths, devices, measuring, study.outcome, callbacks.progress,
                     [&](const MeasuredBandwidth& m) { study.measurements.push_back(bandwidth_record(m)); });
  measure_graphs(selection.graphs, devices, measuring, study.outcome, callbacks.progress,
                 [&](const MeasuredGraph& m) { study.measurements.push_back(graph_record(m)); });
  console.finish_progress();
}

Counting counting_of(const StudyOptions& options) {
  const CounterMode mode = parse_counter_mode(options.counters.empty() ? "analytic" : options.counters);
  const std::string helper = perf::own_executable();
  std::vector<std::unique_ptr<perf::CounterSource>> sources;
  // Where none is asked for, none is opened: what a source loads could disturb what is timed.
  if (mode != CounterMode::analytic) sources = perf::open_counter_sources(helper);
  return Counting(mode, std::move(sources), helper,
                  options.counter_seconds > 0 ? options.counter_seconds : kCounterSeconds);
}

Study measure_study(const StudyOptions& options, MeasureOptions measuring, const Adjust& adjust, Console& console) {
  Counting counting = counting_of(options);
  select(options.selection, false);  // misuse is said before a device's trouble
  const std::vector<OpenDevice> all = open_devices(devices_of(options), options.threads);
  counting.require_sources(all);
  std::vector<OpenDevice> cpus;
  std::vector<OpenDevice> gpus;
  for (const OpenDevice& device : all) (device.gpu ? gpus : cpus).push_back(device);
  if (!cpus.empty() && !gpus.empty()) measuring.seconds_total /= 2;
  Study study;
  measure_selection(options, measuring, cpus, adjust, counting, study, console);
  measure_selection(options, measuring, gpus, adjust, counting, study, console);
  study.counters = counting.record();
  study.uncounted = counting.gave_nothing();
  for (const std::string& line : counting.summary()) console.print(line);
  return study;
}

json read_study(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::invalid_argument, fmt::format("study '{}': the file can't be opened", path));
  try {
    json study = json::parse(file);
    report::validate_study(study);
    return study;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("study '{}': is no JSON: {}", path, error.what()));
  } catch (const report::SchemaError& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("study '{}': {}", path, error.what()));
  }
}

std::string report_folder(const std::string& out) { return out.empty() ? "report" : out; }

/// Now rather than after minutes of measuring.
void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--out '{}': can't be made: {}", folder, error.message()));
  }
  check_writable((std::filesystem::path(folder) / "study.json").string());
}

void print_tables(const json& record, Console& console) {
  const report::Studies studies = report::merge({record});
  console.print(report::table(studies));
  const std::string bandwidths = report::bandwidth_table(studies);
  if (!bandwidths.empty()) console.print(bandwidths);
  const std::string beside = report::trainium_table(studies);
  if (!beside.empty()) console.print(beside);
}

/// `no_png`: why the PNG wasn't drawn, or empty.
void print_whereabouts(const std::string& folder, bool with_study, const std::string& no_png, Console& console) {
  console.print(
      fmt::format("\nThe report is in {0}: open {0}/index.html, or look at {0}/roofline.svg{1};\n"
                  "the numbers are in {0}/study.csv{2}",
                  folder, no_png.empty() ? " and .png" : "", with_study ? " and " + folder + "/study.json" : ""));
  if (!no_png.empty()) console.print(no_png);
}

}  // namespace

ExitCode bench_command(const StudyOptions& options, Console& console) {
  console.check_target();
  MeasureOptions measuring;
  measuring.caches = caches_of(options.cache.empty() ? "warm" : options.cache);
  if (options.seconds > 0) measuring.seconds_each = options.seconds;
  const perf::Machine machine = perf::describe_machine();
  MachineCeilings ceilings;
  if (options.ceilings) ceilings = measure_ceilings(machine, scope_of(devices_of(options)), true, console);
  Study study = measure_study(options, measuring, {}, console);
  judge_measurements(study.measurements, ceilings, machine);
  json record = study_record(machine_record(machine, options.command), ceilings, std::move(study.measurements),
                             study.outcome.refused);
  if (!study.counters.is_null()) record["counters"] = std::move(study.counters);
  report::validate_study(record);
  print_tables(record, console);
  console.emit(record);
  return study.exit_code();
}

ExitCode ceilings_command(const StudyOptions& options, Console& console) {
  console.check_target();
  const perf::Machine machine = perf::describe_machine();
  const auto ceilings = measure_ceilings(machine, whole_machine(), options.quick, console);
  print_ceilings(ceilings, console);
  const json record = study_record(machine_record(machine, options.command), ceilings, json::array(), {});
  report::validate_study(record);
  console.emit(record);
  return kDone;
}

ExitCode roofline_command(const StudyOptions& options, Console& console) {
  console.check_target();
  const std::string folder = report_folder(options.out);
  make_folder(folder);
  MeasureOptions measuring;
  measuring.caches = caches_of(!options.cache.empty() ? options.cache : options.quick ? "warm" : "both");
  measuring.seconds_each = options.quick ? kQuickSecondsEach : kFullSecondsEach;
  if (options.seconds > 0) measuring.seconds_each = options.seconds;
  measuring.seconds_total = options.quick ? kQuickSeconds : kFullSeconds;
  measuring.max_runs = options.quick ? 20 : 50;
  const perf::Machine machine = perf::describe_machine();
  json machine_json = machine_record(machine, options.command);
  Adjust adjust;
  if (options.quick) {
    const std::string note = fmt::format(
        "quick: batches halved until a layer has at most {} GFLOP, or {} GB where it only moves data, at most {} s a "
        "layer and device, short "
        "ceilings",
        kQuickGflop, kQuickGigabytes, measuring.seconds_each);
    console.print(note);
    machine_json["mode"] = note;
    measuring.most_moved_bytes = kQuickGigabytes * 1e9;
    adjust = [](std::vector<Case>& cases) { cap_work(cases, kQuickGflop, kQuickGigabytes); };
  }
  const CeilingScope scope = scope_of(devices_of(options));
  auto ceilings = measure_ceilings(machine, scope, options.quick, console);
  Study study = measure_study(options, measuring, adjust, console);
  if (judge_measurements(study.measurements, ceilings, machine) > kBelievablePercent) {
    // A roof below a measurement was taken while something else ran here.
    keep_higher(ceilings, measure_ceilings(machine, scope, options.quick, console));
    judge_measurements(study.measurements, ceilings, machine);
  }
  json record = study_record(std::move(machine_json), ceilings, std::move(study.measurements), study.outcome.refused);
  if (!study.counters.is_null()) record["counters"] = std::move(study.counters);
  report::validate_study(record);
  write_file((std::filesystem::path(folder) / "study.json").string(), {json_text(record)});
  const std::string no_png = report::write_report({record}, folder);
  print_tables(record, console);
  print_whereabouts(folder, true, no_png, console);
  console.emit(record);
  return study.exit_code();
}

ExitCode plot_command(const std::vector<std::string>& files, const std::string& out, Console& console) {
  std::vector<json> studies;
  for (const std::string& file : files) studies.push_back(read_study(file));
  const std::string folder = report_folder(out);
  make_folder(folder);
  const std::string no_png = report::write_report(studies, folder);
  print_whereabouts(folder, false, no_png, console);
  return kDone;
}

}  // namespace gable::bench
