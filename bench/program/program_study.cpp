// See program_study.h.
#include "bench/program/program_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <set>
#include <utility>

#include "bench/measure/ceiling_rounds.h"
#include "bench/measure/judge.h"
#include "bench/program/cpu_counts.h"
#include "bench/program/findings.h"
#include "bench/program/gpu_counts.h"
#include "bench/program/kernel_findings.h"
#include "bench/program/listening.h"
#include "bench/program/parts.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/machine/files.h"
#include "perfcounters/program/changed_run.h"
#include "perfcounters/program/region_cost.h"
#include "perfcounters/program/session.h"
#include "perfcounters/program/standard_input.h"
#include "perfcounters/roofline/roofline.h"

namespace gable::bench {
namespace {

constexpr double kSeveralThreads = 1.1;  // CPU time / time
constexpr double kWaitedFor = 0.9;       // of the CPU time by children that were waited for, as in a changed run

/// "process 4711 (./app): a note" -> " (./app): a note": the processes of a later run have other numbers.
std::string without_process(const std::string& note) {
  constexpr std::string_view kBegin = "process ";
  if (note.compare(0, kBegin.size(), kBegin) != 0) return note;
  return note.substr(std::min(note.size(), note.find_first_not_of("0123456789", kBegin.size())));
}

int least_one(double threads) { return std::max(1, static_cast<int>(std::lround(threads))); }

/// CPU time of all processes. The system knows it for processes that were waited for; some of the others have reported
/// theirs.
std::optional<double> cpu_seconds_of(const perf::SessionRecords& timed, const perf::LaunchEnd& end) {
  double sum = 0;
  for (const perf::ProcessRecord& process : timed.processes) sum += process.cpu_seconds;
  sum = std::max(sum, end.cpu_seconds);
  return sum > 0 ? std::optional(sum) : std::nullopt;
}

/// Processes that have reported, and those that started them.
int processes_of(const perf::SessionRecords& timed) {
  std::set<int> processes;
  for (const perf::ProcessRecord& process : timed.processes) processes.insert({process.pid, process.parent});
  for (const int none : {0, 1, getpid()}) processes.erase(none);  // parents of the program, or of orphans
  return std::max(1, static_cast<int>(processes.size()));
}

MeasuredPart program_part(const std::string& name, const perf::LaunchEnd& end, std::optional<double> cpu_seconds) {
  MeasuredPart part{.kind = "program", .name = name};
  part.called = {.calls = 1, .seconds = end.seconds, .share = 1.0};
  part.times = {.calls = 1,
                .seconds = end.seconds,
                .median = end.seconds,
                .q1 = end.seconds,
                .q3 = end.seconds,
                .fastest = end.seconds,
                .slowest = end.seconds};
  if (cpu_seconds) part.threads = least_one(*cpu_seconds / end.seconds);
  return part;
}

/// The work that the program itself declared for a region.
CountedWork declared_work(const perf::RegionRecord& region) {
  CountedWork declared;
  const auto calls = static_cast<double>(region.times.calls);
  if (region.flop > 0) declared.flop["f64"] = region.flop / calls;
  if (region.bytes > 0) declared.bytes["dram"] = region.bytes / calls;
  if (!declared.flop.empty() || !declared.bytes.empty()) declared.note = "declared by the program";
  return declared;
}

MeasuredPart region_part(const perf::RegionRecord& region, double program_seconds) {
  MeasuredPart part{.kind = "region", .name = region.path, .times = region.times};
  part.called = {.calls = region.times.calls,
                 .seconds = region.times.seconds,
                 .share = region.times.seconds / program_seconds,
                 .origin = region.origin};
  part.threads = region.busy_threads > 0 ? least_one(region.busy_threads) : region.threads;
  part.counted = declared_work(region);
  return part;
}

/// The regions of all processes under one path each.
std::vector<perf::RegionRecord> merged(const std::vector<perf::RegionRecord>& regions) {
  std::vector<perf::RegionRecord> all;
  for (const perf::RegionRecord& region : regions) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const perf::RegionRecord& one) {
      return one.path == region.path && one.origin == region.origin;
    });
    if (same == all.end()) {
      all.push_back(region);
      continue;
    }
    // The quantiles are those of the process with the most calls.
    perf::CallTimes times = region.times.calls > same->times.calls ? region.times : same->times;
    times.calls = same->times.calls + region.times.calls;
    times.seconds = same->times.seconds + region.times.seconds;
    times.fastest = std::min(same->times.fastest, region.times.fastest);
    times.slowest = std::max(same->times.slowest, region.times.slowest);
    same->times = times;
    same->flop += region.flop;
    same->bytes += region.bytes;
    same->threads = std::max(same->threads, region.threads);
    same->overlapped = same->overlapped || region.overlapped;
  }
  return all;
}

/// Counted work replaces declared work, which stays where nothing was counted, or where it alone has W and Q(dram).
void set_counts(MeasuredPart& part, const CpuCounts& counts) {
  const auto found = counts.by_region.find(part.kind == "program" ? "" : part.name);
  const bool counted = found != counts.by_region.end();
  const bool alone = !part.counted.is_point();
  if (counted && found->second.is_point() && (alone || found->second.has("dram"))) {
    part.counted = found->second;
  } else if (!part.counted.is_point()) {
    if (counted && !found->second.flop.empty()) part.counted = found->second;
    part.counted.reason = counted && !found->second.reason.empty() ? found->second.reason : counts.reason;
  }
}

/// Runs the program as often as needed and puts together what the runs say.
class ProgramMeasurer {
 public:
  ProgramMeasurer(const ProgramOptions& options, Console& console)
      : options_(options), console_(console), name_(std::filesystem::path(options.argv.front()).filename().string()) {}

  ProgramStudy measure() {
    ProgramStudy measured;
    measured.run = {.machine = perf::describe_machine(), .command = options_.command};
    require_source(options_.mode);
    if (options_.experiments && options_.mode == CounterMode::analytic)
      add_notes({"--experiments did nothing: with --counters analytic the program is not run again"});
    run_under_the_clock();
    measured.end = end_;
    if (!end_.reason.empty()) return measured;
    std::vector<MeasuredPart> parts = counted_parts();
    const bool is_counted =
        std::any_of(parts.begin(), parts.end(), [](const MeasuredPart& part) { return !part.counted.by.empty(); });
    if (const std::string lost = perf::lost_input(); is_counted && !lost.empty())
      add_notes({"if the program reads its input, its W and Q are of a run without: " + lost});
    Study& study = measured.study;
    for (const MeasuredPart& part : parts) {
      if (part.counted.is_point()) study.rows.push_back(row_of(part, name_));
    }
    study.program = entry_of_program(parts);
    const MachineCeilings ceilings = judge(study, measured.run.machine);
    flag_rows(parts, study.rows);
    study.program->findings = findings(evidence(measured.run.machine, ceilings.cpu));
    if (options_.experiments) set_kernel_findings(study, parts, ceilings);
    return measured;
  }

 private:
  void run_under_the_clock() {
    const std::string folder = sub_folder("time");
    add_notes(perf::session_notes(perf::SessionMode::time));
    end_ = perf::launch(
        {.argv = options_.argv, .environment = perf::session_environment(folder, perf::SessionMode::time)});
    timed_ = perf::read_session(folder);
    add_notes(timed_.notes);
    if (end_.is_static && timed_.regions.empty()) {
      add_notes({"the program is statically linked: regions, NVTX ranges and GPU kernels in it can't be seen"});
    }
    if (end_.outlived_by > 0) {
      add_notes(
          {fmt::format("{} of its processes still ran a second after its end: what they did later is not measured",
                       end_.outlived_by)});
    }
    cpu_seconds_ = cpu_seconds_of(timed_, end_);
  }

  /// A new folder for what the processes of one run write.
  std::string sub_folder(const std::string& name) const {
    const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directory(path);
    return path.string();
  }

  /// Why the program is not run again to count; empty: it may be.
  std::string refuses_run() const {
    return options_.mode == CounterMode::analytic ? "--counters analytic" : refuses_any_run();
  }

  std::string refuses_any_run() const {
    if (end_.interrupted || perf::interrupting_signal() != 0)
      return "the program was interrupted, and is not run again";
    if (end_.signal != 0) return fmt::format("signal {} ended the program, and it is not run again", end_.signal);
    return "";
  }

  void add_notes(const std::vector<std::string>& notes) {
    for (const std::string& note : notes) {
      const auto same = [&](const std::string& other) { return without_process(other) == without_process(note); };
      if (std::none_of(notes_.begin(), notes_.end(), same)) notes_.push_back(note);
    }
  }

  std::size_t runs_of_phases() const { return timed_.kernels.empty() ? 1 : 2; }

  std::vector<MeasuredPart> counted_parts() {
    std::vector<MeasuredPart> parts{program_part(name_, end_, cpu_seconds_)};
    const std::vector<perf::RegionRecord> regions = merged(timed_.regions);
    for (const perf::RegionRecord& region : regions) parts.push_back(region_part(region, end_.seconds));
    judge_listening(parts, regions);
    for (MeasuredPart& part : parts) set_counts(part, cpu_counts());
    for (MeasuredPart& kernel : gpu_parts()) parts.push_back(std::move(kernel));
    make_names_unique(parts);
    const auto beyond = static_cast<int>(regions.size()) - options_.top;
    if (beyond > 0) {
      add_notes({fmt::format("{} more region{} with less time: --top {} shows {} too", beyond, beyond == 1 ? "" : "s",
                             options_.top + beyond, beyond == 1 ? "it" : "them")});
    }
    return with_most_time(std::move(parts), options_.top);
  }

  /// After the program's run, so that a program without regions does not wait for it.
  void judge_listening(std::vector<MeasuredPart>& parts, const std::vector<perf::RegionRecord>& regions) {
    if (regions.empty()) return;
    std::string failure;
    const auto cost = unless_it_fails([&] { return perf::measure_region_cost(sub_folder("regions")); }, failure);
    if (!cost || !*cost) return;
    const std::string note = flag_listening(parts, regions, **cost, cpu_seconds_.value_or(0));
    if (!note.empty()) add_notes({note});
  }

  /// What a further run gives; nothing if the system fails, and why. What the first run gave must outlive that.
  template <class Run>
  static auto unless_it_fails(const Run& run, std::string& failure) -> std::optional<decltype(run())> {
    try {
      return run();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      failure = std::string("the program could not be run again: ") + error.what();
      return std::nullopt;
    }
  }

  CpuCounts count_cpu_again() {
    const CpuCountRequest request{.argv = options_.argv,
                                  .mode = options_.mode,
                                  .folder = sub_folder("cpu"),
                                  .seconds_limit = options_.counter_seconds,
                                  .uses_gpu = !timed_.kernels.empty(),
                                  .cpu_seconds = cpu_seconds_.value_or(end_.seconds),
                                  .exit_status = end_.status()};
    return count_cpu(request, [this](const std::string& what) { console_.progress(1, runs_of_phases(), what); });
  }

  const CpuCounts& cpu_counts() {
    if (!cpu_) {
      cpu_ = CpuCounts{.reason = refuses_run()};
      if (cpu_->reason.empty()) {
        std::string failure;
        cpu_ = unless_it_fails([this] { return count_cpu_again(); }, failure).value_or(CpuCounts{.reason = failure});
        console_.finish_progress();
        add_notes(cpu_->notes);
      }
    }
    return *cpu_;
  }

  std::vector<MeasuredPart> gpu_parts() {
    if (timed_.kernels.empty()) return {};
    GpuCountRequest request{.argv = options_.argv,
                            .runs_again = refuses_run().empty() && !cpu_counts().interrupted,
                            .completes = refuses_any_run().empty() && !cpu_counts().interrupted,
                            .counts = options_.mode != CounterMode::simulated,
                            .deep = options_.experiments,
                            .exit_status = end_.status(),
                            .seconds = end_.seconds,
                            .counter_seconds = options_.counter_seconds};
    const auto count = [&] {
      if (request.completes) request.folder = sub_folder("gpu");
      return count_gpu(timed_, request, [this](const std::string& what) { console_.progress(2, 2, what); });
    };
    std::string failure;
    std::optional<GpuParts> counted = unless_it_fails(count, failure);
    console_.finish_progress();
    if (!counted) {
      add_notes({failure});
      request.runs_again = request.completes = false;
    }
    GpuParts gpu = counted ? std::move(*counted) : count();
    add_notes(gpu.notes);
    return std::move(gpu.parts);
  }

  ProgramEntry entry_of_program(const std::vector<MeasuredPart>& parts) const {
    ProgramEntry entry{.command = fmt::format("{}", fmt::join(options_.argv, " ")),
                       .seconds = end_.seconds,
                       .cpu_seconds = cpu_seconds_,
                       .processes = processes_of(timed_),
                       .interrupted = end_.interrupted,
                       .notes = notes_};
    if (end_.signal != 0) {
      entry.signal = end_.signal;
    } else {
      entry.exit_code = end_.exit_code;
    }
    for (const MeasuredPart& part : parts) entry.parts.push_back(entry_of(part));
    return entry;
  }

  /// `parts` are those of the study's program.
  static void set_kernel_findings(Study& study, const std::vector<MeasuredPart>& parts,
                                  const MachineCeilings& ceilings) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const MeasuredPart& part = parts[i];
      if (part.kind != "kernel") continue;
      KernelEvidence evidence{.seconds = part.times.median, .counts = part.counts, .stalls = part.stalls};
      const GpuCeilings* gpu = ceilings.of_gpu(part.gpu);
      if (gpu != nullptr) evidence.launch_seconds = gpu->overhead_seconds;
      ProgramPart& entry = study.program->parts[i];
      if (const Row* row = row_of_part(study.rows, entry)) evidence.verdict = row->verdict;
      entry.findings = kernel_findings(evidence);
      if (entry.findings.empty()) continue;
      entry.counts = part.counts;
      for (const auto& [reason, stalled] : part.stalls) entry.counts["stalled: " + reason] = stalled;
    }
  }

  static void note_no_ceilings(Study& study) {
    study.program->notes.emplace_back("interrupted: the machine's ceilings were not measured");
  }

  /// Collects the evidence of where the program's CPU time goes; with further runs, if the program may run again.
  ProgramEvidence evidence(const perf::Machine& machine, const std::vector<perf::Ceiling>& ceilings) {
    ProgramEvidence evidence{.run = {.seconds = end_.seconds,
                                     .cpu_seconds = cpu_seconds_.value_or(end_.cpu_seconds),
                                     .system_seconds = end_.system_seconds,
                                     .queued_seconds = end_.queued_seconds,
                                     .page_faults = static_cast<double>(end_.page_faults),
                                     .resident_bytes = end_.resident_bytes,
                                     .waits = static_cast<double>(end_.waits),
                                     .preemptions = static_cast<double>(end_.preemptions)},
                             .clock_hz = machine.cpu.clock_hz};
    for (const perf::KernelRecord& kernel : timed_.kernels) evidence.run.gpu_seconds += kernel.times.seconds;
    evidence.threads = least_one(evidence.run.cpu_seconds / end_.seconds);
    evidence.work = cpu_counts().evidence;
    if (evidence.work) evidence.ceilings = ceiling_evidence(ceilings, evidence.threads);
    const bool may_run = options_.experiments && refuses_run().empty() && timed_.kernels.empty() &&
                         !cpu_counts().interrupted && end_.cpu_seconds > kWaitedFor * evidence.run.cpu_seconds;
    if (!may_run || !wants_experiments(evidence)) return evidence;
    const auto cpu_seconds = [&](perf::Change change, const char* what) {
      console_.progress(1, runs_of_phases(), what);
      std::string failure;
      const auto run = [&] { return perf::changed_cpu_seconds(options_.argv, change, longest_again(), end_.status()); };
      const auto found = unless_it_fails(run, failure);
      console_.finish_progress();
      return found.value_or(std::nullopt);
    };
    if (evidence.work && evidence.work->flop > 0) {
      evidence.cpu_seconds_flushed =
          cpu_seconds(perf::Change::denormals_as_zeros, "running again with denormals as zeros");
      if (!evidence.cpu_seconds_flushed) return evidence;  // interrupted, or it does not run so
    }
    // Without ceilings, sharing between threads can't be told from waiting for memory.
    if (evidence.run.cpu_seconds > kSeveralThreads * end_.seconds && evidence.ceilings.dram > 0)
      evidence.cpu_seconds_on_one_cpu = cpu_seconds(perf::Change::one_cpu, "running again on one CPU");
    return evidence;
  }

  std::vector<Regime> findings(ProgramEvidence evidence) {
    std::vector<Regime> found = findings_of(evidence);
    if (!options_.experiments || !refuses_run().empty() || !wants_accesses(found)) return found;
    console_.progress(1, runs_of_phases(), "running again, stopped now and then to see which addresses it accesses");
    std::string failure;
    const auto run = [&] { return perf::sample_accesses(options_.argv, longest_again(), end_.status()); };
    evidence.accesses = unless_it_fails(run, failure).value_or(std::nullopt);
    console_.finish_progress();
    return evidence.accesses ? findings_of(evidence) : found;
  }

  /// Seconds of a further run, which may be slower.
  double longest_again() const { return std::min(10 * end_.seconds + 1, options_.counter_seconds); }

  CeilingEvidence ceiling_evidence(const std::vector<perf::Ceiling>& ceilings, int threads) {
    const CpuCounts& counts = cpu_counts();
    const auto whole = counts.by_region.find("");
    const std::string dtype = whole == counts.by_region.end() ? "f32" : main_dtype(whole->second.flop);
    std::vector<perf::Ceiling> scalar;
    std::copy_if(ceilings.begin(), ceilings.end(), std::back_inserter(scalar),
                 [](const perf::Ceiling& ceiling) { return ceiling.isa_or_level == "scalar"; });
    return {.flops = perf::compute_roof(ceilings, dtype, threads).value,
            .scalar_flops = perf::compute_roof(scalar, dtype, threads).value,
            .dram = perf::bandwidth_roof(ceilings, "dram", threads).value};
  }

  /// The GPUs of its kernels; the CPU where it has a point there or findings need it, as of every program without
  /// kernels.
  CeilingScope ceiling_scope(const Study& study) {
    std::set<int> gpus;
    for (const perf::KernelRecord& kernel : timed_.kernels) gpus.insert(kernel.gpu);
    const bool on_cpu = std::any_of(study.rows.begin(), study.rows.end(), [](const Row& row) { return !row.on_gpu(); });
    return {.cpu = gpus.empty() || on_cpu || cpu_counts().evidence, .gpus = {gpus.begin(), gpus.end()}};
  }

  MachineCeilings judge(Study& study, const perf::Machine& machine) {
    MachineCeilings ceilings;
    const bool interrupted = end_.interrupted || perf::interrupting_signal() != 0 || (cpu_ && cpu_->interrupted);
    if (options_.ceilings && interrupted) note_no_ceilings(study);
    if (options_.ceilings && !interrupted) {
      const CeilingScope scope = ceiling_scope(study);
      const CeilingCallbacks callbacks{[this](std::size_t done, std::size_t total, const std::string& what) {
                                         perf::throw_if_interrupted();
                                         console_.progress(done, total, what);
                                       },
                                       [this](const std::string& line) { console_.print(line); }};
      const auto measure = [&](const CeilingRound& round) {
        return measure_ceilings(machine, round.scope, options_.quick_ceilings || round.known != nullptr, callbacks,
                                round.known);
      };
      CeilingRounds rounds({measure, steady_seconds}, scope);
      ceilings = rounds.judge(study.rows, machine);
      if (perf::interrupting_signal() != 0) {  // verdicts from only some of the roofs would be wrong
        ceilings = {};
        note_no_ceilings(study);
      }
      console_.finish_progress();
      study.ceilings = ceiling_entries(ceilings);
      study.rates = rate_entries(ceilings);
    }
    judge_rows(study.rows, ceilings, machine);
    return ceilings;
  }

  const ProgramOptions& options_;
  Console& console_;
  std::string name_;
  const perf::TemporaryFolder folder_{"gable-session"};
  perf::LaunchEnd end_;
  perf::SessionRecords timed_;
  std::optional<double> cpu_seconds_;
  std::optional<CpuCounts> cpu_;
  std::vector<std::string> notes_;
};

}  // namespace

ProgramStudy measure_program(const ProgramOptions& options, Console& console) {
  return ProgramMeasurer(options, console).measure();
}

}  // namespace gable::bench
