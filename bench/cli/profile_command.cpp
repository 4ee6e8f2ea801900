// See profile_command.h. Stall ratios are counted in separate runs, because counting and tracing disturb each other.
#include "bench/cli/profile_command.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "bench/common/files.h"
#include "bench/common/text.h"
#include "bench/measure/op_runner.h"
#include "bench/record/profile_json.h"
#include "bench/record/study_json.h"
#include "bench/report/profile.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/sources/gpu_metrics.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::bench {
namespace {

using perf::Activity;

struct Profile {
  std::vector<Span> spans;
  std::vector<KernelStalls> stalls;
  Outcome outcome;
};

/// One case to profile on one device.
struct ProfileJob {
  const Case& one;
  const OpenDevice& device;
  const ProfileOptions& options;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Name and dtype: a suite uses one name for the cases of several dtypes.
std::string label(const Case& one) { return fmt::format("{} {}", one.name, to_string(dtype_of(one.op))); }

const char* group_of(Activity::Kind kind) {
  const bool api = kind == Activity::Kind::runtime_api || kind == Activity::Kind::driver_api;
  return api ? kApiCalls : kGpuActivities;
}

Span span_of(const Activity& activity, const Case& one, const std::string& device) {
  const bool kernel = activity.kind == Activity::Kind::kernel;
  return {.group = group_of(activity.kind),
          .name = kernel ? short_kernel_name(activity.name) : activity.name,
          .device = device,
          .case_name = label(one),
          .start = static_cast<double>(activity.start) * 1e-9,
          .seconds = static_cast<double>(activity.end - activity.start) * 1e-9,
          .lane = activity.lane,
          .activity = activity};
}

/// Runs `work` under a trace and returns the CUDA activity of the process. Ends the trace also if `work` throws.
std::vector<Activity> traced(const std::function<void()>& work) {
  perf::GpuProfiler& profiler = perf::gpu_profiler();
  profiler.start_trace();
  try {
    work();
  } catch (...) {
    profiler.stop_trace();
    throw;
  }
  return profiler.stop_trace();
}

std::vector<std::string> kernels_of(const std::vector<Activity>& activities) {
  std::vector<std::string> names;
  for (const Activity& activity : activities) {
    if (activity.kind == Activity::Kind::kernel) names.push_back(short_kernel_name(activity.name));
  }
  return names;
}

void count_stalls(const Case& one, const OpRunner& runner, std::vector<KernelStalls>& all) {
  perf::GpuProfiler& profiler = perf::gpu_profiler();
  const int gpu = runner.device().device.info().memory.index;
  std::vector<std::string> metrics;
  perf::append_metrics(perf::gpu_stall_terms(), metrics);
  metrics = profiler.available(profiler.chip(gpu), metrics);
  const std::vector<std::string> kernels = kernels_of(traced([&] { runner.run(); }));
  const perf::Counted counted =
      profiler.count(gpu, {.metrics = metrics, .run = [&] { runner.run(); }, .before = {}, .each_kernel = true});
  if (counted.ranges.size() != kernels.size()) {
    throw Error(ErrorCode::device_failure,
                fmt::format("{} kernels were traced and {} counted: stalls can't be assigned", kernels.size(),
                            counted.ranges.size()));
  }
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    perf::GpuCounts counts;
    for (std::size_t m = 0; m < metrics.size(); ++m) counts[metrics[m]] = counted.ranges[k][m];
    KernelStalls stalls{runner.device().uri, label(one), kernels[k], 0,
                        perf::gpu_parts(perf::gpu_stall_terms(), counts)};
    for (const auto& [reason, value] : stalls.reasons) stalls.latency += value;
    all.push_back(std::move(stalls));
  }
}

void profile_on_gpu(const ProfileJob& job, const OpData& data, Profile& profile) {
  std::unique_ptr<OpRunner> runner;
  const std::vector<Activity> activities = traced([&] {
    runner = std::make_unique<OpRunner>(job.device, job.one.op);
    runner->prepare(data);
    for (int i = 0; i < job.options.runs; ++i) runner->run();
  });
  for (const Activity& activity : activities) profile.spans.push_back(span_of(activity, job.one, job.device.uri));
  if (job.options.deep) count_stalls(job.one, *runner, profile.stalls);
}

/// Times phases of a case on the host.
class PhaseTimer {
 public:
  PhaseTimer(const Case& one, const OpenDevice& device, std::vector<Span>& spans)
      : case_(one), device_(device), spans_(spans) {}

  void time(const std::string& phase, const std::function<void()>& work) {
    const double start = now();
    work();
    spans_.push_back({.group = kCpuPhases,
                      .name = phase,
                      .device = device_.uri,
                      .case_name = label(case_),
                      .start = start,
                      .seconds = now() - start});
  }

 private:
  const Case& case_;
  const OpenDevice& device_;
  std::vector<Span>& spans_;
};

/// A kernel that reorders images does so tile by tile, so reordering is part of the kernel's time. A `reorder` op has
/// its own row.
void profile_on_cpu(const ProfileJob& job, const OpData& data, Profile& profile) {
  PhaseTimer timer(job.one, job.device, profile.spans);
  std::unique_ptr<OpRunner> runner;
  timer.time("plan", [&] { runner = std::make_unique<OpRunner>(job.device, job.one.op); });
  runner->prepare(data);
  if (has_math(job.one.op)) timer.time("pack weights", [&] { runner->plan().pack(data.weights); });
  const std::string kernel = "kernel " + runner->plan().kernel();
  for (int i = 0; i < job.options.runs; ++i) timer.time(kernel, [&] { runner->run(); });
}

void profile_case(const ProfileJob& job, Profile& profile) {
  const Case& one = job.one;
  try {
    validate(one.op);
    require_memory(bytes_needed(one.op, 1), fmt::format("'{}'", descriptor(one.op)));
    const OpData data = random_data(one.op);
    (job.device.on_gpu() ? profile_on_gpu : profile_on_cpu)(job, data, profile);
    ++profile.outcome.ran;
  } catch (const Error& error) {
    profile.outcome.refuse(identity_of(one), job.device.uri, error);
  }
}

/// "long scoreboard 41 %, wgmma 20 %": the reasons that make up more than a tenth of the latency.
std::string main_reasons(const KernelStalls& stalls) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [reason, value] : stalls.reasons) sorted.emplace_back(value, reason);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (const auto& [value, reason] : sorted) {
    const double percent = stalls.latency > 0 ? 100 * value / stalls.latency : 0;
    if (percent < 10) break;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", reason, percent);
  }
  return text;
}

void print_stalls(const std::vector<KernelStalls>& all, Console& console) {
  if (all.empty()) return;
  std::size_t name_width = 4, kernel_width = 6;
  for (const KernelStalls& s : all) {
    name_width = std::max(name_width, s.case_name.size());
    kernel_width = std::max(kernel_width, s.kernel.size());
  }
  struct Cells {
    std::string device, name, kernel, cycles, reasons;
  };
  const auto row = [&](const Cells& cells) {
    console.print(printable(fmt::format("{:<8} {:<{}}  {:<{}}  {:>6}  {}", cells.device, cells.name, name_width,
                                        cells.kernel, kernel_width, cells.cycles, cells.reasons)));
  };
  console.print("\nWhy warps waited: cycles for each instruction, and what is more than a tenth of them");
  row({"Device", "Case", "Kernel", "Cycles", "Reasons"});
  for (const KernelStalls& s : all)
    row({s.device, s.case_name, s.kernel, fmt::format("{:.2f}", s.latency), main_reasons(s)});
}

/// Returns the printed rows.
std::vector<ProfileRow> print_hottest(const std::vector<ProfileRow>& rows, Console& console) {
  std::vector<ProfileRow> all;
  std::string former;
  for (const ProfileRow& first : rows) {
    const std::string table = first.group + " on " + first.device;
    if (table == former || first.group == kApiCalls) continue;  // API calls mostly wait for the GPU
    former = table;
    console.print(fmt::format("90 % of the time of the {} on {}:", first.group == kGpuActivities ? "kernels" : "phases",
                              first.device));
    for (const ProfileRow& row : hottest(rows, first.device, first.group)) {
      console.print(printable(fmt::format("  {:>6.2f} %  {}", row.percent, row.name)));
      all.push_back(row);
    }
  }
  return all;
}

bool any_on_gpu(const std::vector<OpenDevice>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const OpenDevice& device) { return device.on_gpu(); });
}

void require_tracing(const std::vector<OpenDevice>& devices) {
  if (any_on_gpu(devices)) traced([] {});
}

Profile profile_all(const StudyOptions& given, const ProfileOptions& options, Console& console) {
  StudyOptions study = given;
  read_file(study.selection);
  select(study.selection, false);  // reports misuse before any device is opened
  std::vector<std::string> closed;
  const std::vector<OpenDevice> devices = open_asked(study.devices, study.threads, closed);
  for (const std::string& line : closed) console.print(line);
  require_tracing(devices);
  if (options.deep && !any_on_gpu(devices)) console.print("--deep does nothing: none of these devices is a GPU");
  Profile profile;
  for (const OpenDevice& device : devices) {
    const Selection selection = select(study.selection, device.on_gpu());
    profile.outcome.malformed = selection.malformed;
    profile.outcome.add(selection.refused);
    std::size_t done = 0;
    for (const Case& one : selection.cases) {
      if (perf::interrupting_signal() != 0) break;
      console.progress(done++, selection.cases.size(), fmt::format("{} on {}", one.name, device.uri));
      profile_case({one, device, options}, profile);
    }
  }
  console.finish_progress();
  return profile;
}

}  // namespace

ExitCode profile_command(const StudyOptions& study, const ProfileOptions& options, Console& console) try {
  console.check_target();
  for (const std::string& file : {options.csv, options.trace}) {
    if (!file.empty()) check_writable(file);
  }
  check_distinct({options.csv, options.trace, console.json_file()});
  const perf::InterruptKeeper interrupts;
  const Profile profile = profile_all(study, options, console);
  const std::vector<ProfileRow> rows = profile_rows(profile.spans);
  console.print(profile_table(rows));
  const std::vector<ProfileRow> hot = print_hottest(rows, console);
  print_stalls(profile.stalls, console);
  print_refusals(profile.outcome.refused, console);
  console.emit(to_json(ProfileDocument{.machine = perf::describe_machine(),
                                       .command = study.line.text,
                                       .runs = options.runs,
                                       .rows = rows,
                                       .hottest = hot,
                                       .stalls = profile.stalls,
                                       .refused = profile.outcome.refused}));
  if (!options.csv.empty()) write_file(options.csv, {profile_csv(rows)});
  if (!options.trace.empty()) write_file(options.trace, {json_text(chrome_trace(profile.spans))});
  return profile.outcome.exit_code();
} catch (const perf::GpuProfilerError& error) {
  const perf::GpuFailure failure = perf::explain_gpu_failure(error.code(), error.what());
  throw Error(ErrorCode::unavailable,
              "the GPU can't be profiled: " + failure.reason + (failure.cure.empty() ? "" : ". Cure: " + failure.cure));
}

}  // namespace gable::bench
