// See simulation.h.
#include "perfcounters/program/simulation.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "perfcounters/machine/files.h"
#include "perfcounters/program/preload_list.h"
#include "perfcounters/program/program_file.h"
#include "perfcounters/program/session.h"
#include "perfcounters/program/simulated_parts.h"
#include "perfcounters/program/time_limit.h"
#include "perfcounters/sources/callgrind.h"
#include "perfcounters/sources/callgrind_profile.h"
#include "perfcounters/sources/counter_plugins.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

constexpr std::array kLevels{Metric::dram_bytes, Metric::l3_bytes, Metric::l2_bytes};
constexpr const char* kPreloaded = "libgable_preload.so";
constexpr const char* kUnloadedLoses =
    "lines that are dirty at the program's end are not counted, and what ran before a fork() counts twice";
constexpr const char* kListener = "libgable_listen.so";
constexpr const char* kReplaced = "its process replaced itself (exec), and what it did before is not simulated";
constexpr double kNotedUnswept = 0.01;  // share of Q that may have been left dirty in the caches

// ---- One run

/// A run of the program: the traffic of one level, or none with Metric::flop.
struct Run {
  Metric level = Metric::flop;
  bool counts_flop = false;
};

/// What a run left behind.
struct RunResult {
  LaunchEnd end{};
  bool timed_out = false;
  std::map<int, CallgrindProfile> profiles{};  ///< by process
  SessionRecords session{};
  std::vector<std::string> notes{};
  std::optional<UnknownInstruction> fatal{};  ///< that ended a process
  bool can_write = true;                      ///< false: callgrind ended a process because it could not write there
  std::string printed{};                      ///< by valgrind
};

/// W comes from the first run, since it is the same in each.
std::vector<Run> runs_for(const SimulationRequest& request, const SourceStatus& status) {
  const auto wanted = [&](Metric metric) {
    return std::find(request.metrics.begin(), request.metrics.end(), metric) != request.metrics.end() &&
           ability(status, metric).available;
  };
  std::vector<Run> runs;
  for (const Metric level : kLevels)
    if (wanted(level)) runs.push_back({.level = level});
  if (wanted(Metric::flop)) {
    if (runs.empty()) runs.emplace_back();
    runs.front().counts_flop = true;
  }
  return runs;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Launch launch_for(const SimulationRequest& request, Metric level, const fs::path& folder) {
  Launch what;
  what.own_streams = false;
  what.argv = callgrind_command(request.caches, level, valgrind_path(folder.string()) + "/profile.%p");
  for (const std::string& word : {std::string("--branch-sim=yes"), std::string("--trace-children=yes"),
                                  std::string("--fair-sched=try"),  // a thread that spins lets others run
                                  "--log-file=" + valgrind_path(folder.string()) + "/log.%p"})
    what.argv.push_back(word);
  what.argv.insert(what.argv.end(), request.argv.begin(), request.argv.end());
  what.environment = session_environment((folder / "session").string(), SessionMode::simulated);
  const CounterPlugin preloaded = find_counter_plugin(kPreloaded);
  const bool can_load = !preloaded.file.empty() && !has_foreign_loader(find_program_file(request.argv.front()).file);
  const std::string preload = can_load ? preload_list(preloaded.file, folder.string()) : "";
  if (!preload.empty()) what.environment.emplace_back("LD_PRELOAD", preload);
  if (const auto cache = boundary(request.caches, level))
    what.environment.emplace_back("GABLE_SWEEP_BYTES", std::to_string(with_power_of_two_sets(*cache).bytes));
  if (variable("OMP_WAIT_POLICY").empty()) what.environment.emplace_back("OMP_WAIT_POLICY", "passive");
  // callgrind fails an assertion when a signal of Go's scheduler, by which a thread stops another, returns.
  const std::string go = variable("GODEBUG");
  what.environment.emplace_back("GODEBUG", (go.empty() ? "" : go + ",") + "asyncpreemptoff=1");
  for (const auto& one : request.environment) what.environment.push_back(one);
  return what;
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// "profile.4711" -> 4711; nothing for other names.
std::optional<int> process_of(const std::string& name, const std::string& kind) {
  if (name.compare(0, kind.size() + 1, kind + ".") != 0) return std::nullopt;
  const std::string digits = name.substr(kind.size() + 1);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoi(digits);
}

void read_log(const fs::path& file, RunResult& result) {
  const std::string text = text_of(file);
  result.printed += text;
  if (text.find("can not open cache simulation output file") != std::string::npos) result.can_write = false;
  std::optional<UnknownInstruction> instruction = find_unknown_instruction(text);
  if (!instruction) return;
  if (text.find("(SIGILL)") != std::string::npos)
    result.fatal = std::move(instruction);
  else
    result.notes.push_back(instruction->reason + "; the program went on without it");
}

void read_folder(const fs::path& folder, RunResult& result) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (process_of(name, "log")) read_log(entry.path(), result);
    const std::optional<int> pid = process_of(name, "profile");
    if (!pid) continue;
    try {
      CallgrindProfile profile;
      add_callgrind_profile(entry.path().string(), profile);
      result.profiles[*pid] = std::move(profile);
    } catch (const std::exception& error) {
      result.notes.push_back(fmt::format("process {} is left out: {}", *pid, error.what()));
    }
  }
  result.session = read_session((folder / "session").string());
}

/// Says so if the library that is there can't be loaded.
void note_preload(const std::string& program, const Launch& what, const fs::path& folder, RunResult& result) {
  const auto is_preload = [](const auto& one) { return one.first == "LD_PRELOAD"; };
  if (std::any_of(what.environment.begin(), what.environment.end(), is_preload)) return;
  const std::string file = find_counter_plugin(kPreloaded).file;
  if (file.empty()) return;  // add_status() says so
  if (has_foreign_loader(find_program_file(program).file)) {
    result.notes.push_back(fmt::format("the program's dynamic loader is not gable's, and does not load {}: {}",
                                       kPreloaded, kUnloadedLoses));
    return;
  }
  result.notes.push_back(fmt::format(
      "'{}' can't be loaded: the loader parts LD_PRELOAD at blanks and colons, and no link of a name without "
      "them can be made in '{}' (TMPDIR names another folder): {}",
      file, folder.parent_path().string(), kUnloadedLoses));
}

RunResult run_once(const SimulationRequest& request, Metric level) {
  const TemporaryFolder folder("gable_simulation");
  const fs::path path = folder.path();
  fs::create_directory(path / "session");
  RunResult result;
  Launch what = launch_for(request, level, path);
  std::optional<TimeLimit> limit;
  what.attach = [&](int pid) { limit.emplace(pid, request.seconds_limit); };
  result.end = launch(what);
  note_preload(request.argv.front(), what, path, result);
  result.timed_out = limit && limit->stop();
  if (!result.timed_out) read_folder(path, result);
  return result;
}

/// The failed assertion or fatal error of valgrind itself, or else the last line that it printed and that is no
/// warning; empty if there is none. After a failure it prints stacks, and whom to write to.
std::string main_message(const std::string& printed) {
  std::istringstream lines(printed);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    for (const char* failure : {"Assertion '", "the 'impossible' happened", "INTERNAL ERROR", "FATAL"})
      if (line.find(failure) != std::string::npos) return "valgrind failed: " + line;
    if (!line.empty() && line.find(" warning: ") == std::string::npos) last = line;
  }
  return last;
}

/// Why valgrind does not start this program; empty: that is not known.
std::string why_not_under_valgrind(const std::string& program) {
  const std::string file = find_program_file(program).file;
  struct stat status {};
  if (file.empty() || stat(file.c_str(), &status) != 0) return "";
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0)
    return fmt::format("'{}' runs with the rights of another user (setuid or setgid), which valgrind does not start",
                       file);
  if (access(file.c_str(), R_OK) != 0)
    return fmt::format("'{}' may be executed but not read, and valgrind must read it", file);
  return "";
}

/// Why the whole run gives nothing; empty: it gives something.
std::string failure_of(const RunResult& result, const SimulationRequest& request) {
  if (!result.end.reason.empty()) return "valgrind could not be started: " + result.end.reason;
  if (result.timed_out)
    return fmt::format("the program was stopped under valgrind after {:.0f} s, the limit of a simulated run",
                       result.end.seconds);
  if (result.fatal) return result.fatal->reason;
  if (!result.can_write)
    return "a process of the program could no longer write into gable's folder in TMPDIR (after setuid() or chroot(), "
           "for example), so callgrind could not keep its counts and ended it";
  if (result.end.interrupted) return "the program was interrupted under valgrind";
  if (!result.profiles.empty()) return "";
  const std::string said = main_message(result.printed);
  if (!said.empty()) return "callgrind wrote no profile: " + said;
  const std::string why = why_not_under_valgrind(request.argv.front());
  if (!why.empty()) return why;
  return fmt::format("callgrind wrote no profile: '{}' did not start there, or was killed (status {})",
                     request.argv.front(), result.end.status());
}

// ---- Sums over processes

/// A region in all processes of one run; or, with the empty path, the program.
struct Sum {
  SimulatedPart part{};
  SimulatedPart residue{};
  std::int64_t calls = 0, counted_calls = 0;
  std::string refusal{};
};

struct Sums {
  std::map<std::string, Sum> by_path{};
  std::vector<std::string> notes{};
};

/// Callgrind forgets what a process did before it replaced itself.
bool is_forgotten(const RegionRecord& region, const SimulatedParts& parts) {
  return region.marked_calls > 0 && inclusive_part(parts, region.path).events.empty();
}

void add_region(const RegionRecord& region, const SimulatedParts& parts, Sums& sums) {
  Sum& sum = sums.by_path[region.path];
  sum.calls += region.times.calls;
  sum.counted_calls += region.marked_calls;
  if (is_forgotten(region, parts)) {
    sum.refusal = kReplaced;
    sums.by_path[""].refusal = kReplaced;
    return;
  }
  if (region.overlapped)
    sum.refusal = "threads were inside of regions at the same time, so that counts can't be told apart";
  if (region.marked_calls == 0) return;
  const double factor = static_cast<double>(region.times.calls) / static_cast<double>(region.marked_calls);
  sum.part += inclusive_part(parts, region.path) * factor;
}

double bytes_of(const SimulatedPart& part, const SimulatedPart& residue, int line) {
  return callgrind_bytes(part.events, residue.events, true, line);
}

/// The most that can be dirty at the end of a process: lines that were filled and not written back.
double most_dirty_bytes(const SimulatedPart& part, const CacheGeometry& cache) {
  const auto count = [&](const char* event) {
    const auto found = part.events.find(event);
    return found == part.events.end() ? 0.0 : found->second;
  };
  const double lines = count("DLmr") + count("DLmw") - count("ILdmr") - count("DLdmr") - count("DLdmw");
  return std::clamp(lines * cache.line, 0.0, static_cast<double>(cache.bytes));
}

Sums sums_of(const RunResult& result, FlopCounter* counter, const CacheGeometry& cache) {
  Sums sums;
  Sum& whole = sums.by_path[""];
  double unswept = 0;
  int unswept_processes = 0;
  for (const auto& [pid, profile] : result.profiles) {
    const SimulatedParts parts = parts_of(profile, counter);
    const SimulatedPart part = inclusive_part(parts, "");
    whole.part += part;
    whole.residue += parts.residue;
    if (!parts.is_swept) {
      unswept += most_dirty_bytes(part, cache);
      ++unswept_processes;
    }
    for (const RegionRecord& region : result.session.regions)
      if (region.pid == pid) add_region(region, parts, sums);
  }
  if (unswept > kNotedUnswept * bytes_of(whole.part, whole.residue, cache.line))
    sums.notes.push_back(fmt::format(
        "{} process{} ended without exit(), or without loading {}: lines that were dirty in the caches then, at most "
        "{:.2g} MB, are not counted",
        unswept_processes, unswept_processes == 1 ? "" : "es", kPreloaded, unswept / 1e6));
  return sums;
}

Quantity known(double value, const std::string& note) {
  return {.value = value, .q1 = value, .q3 = value, .note = note};
}

std::string scaling_note(const Sum& sum) {
  if (sum.calls == sum.counted_calls) return "";
  return fmt::format("{} of {} calls were counted", sum.counted_calls, sum.calls);
}

std::string joined(const std::string& a, const std::string& b) { return a.empty() || b.empty() ? a + b : a + "; " + b; }

/// Adds what one run tells about the program or a region.
void add_run(const Run& run, const Sum& sum, const SimulationRequest& request, SimulatedWork& work) {
  work.calls = sum.calls;
  work.counted_calls = sum.counted_calls;
  const std::string refusal = !sum.refusal.empty() ? sum.refusal
                              : sum.calls > 0 && sum.counted_calls == 0
                                  ? "none of its calls was separated from the region above"
                                  : "";
  if (run.level != Metric::flop) {
    const CacheGeometry cache = *boundary(request.caches, run.level);
    work.quantities[run.level] = refusal.empty()
                                     ? known(bytes_of(sum.part, sum.residue, cache.line),
                                             joined(rounding_note(request.caches, run.level), scaling_note(sum)))
                                     : Quantity{.reason = refusal};
  }
  if (!run.counts_flop) return;
  work.flop = sum.part.flop;
  work.events = sum.part.events;
  const std::string why = joined(refusal, work.flop.refusal());
  work.quantities[Metric::flop] =
      why.empty() ? known(work.flop.total(), joined(work.flop.note(), scaling_note(sum))) : Quantity{.reason = why};
}

void refuse(SimulatedWork& work, Metric metric, const std::string& reason) {
  if (work.quantities.count(metric) == 0) work.quantities[metric] = {.reason = reason};
}

void note_once(std::vector<std::string>& notes, const std::string& note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

/// Notes of a run that gave something.
void add_notes(const RunResult& result, SimulatedProgram& program) {
  for (const auto* notes : {&result.notes, &result.session.notes})
    for (const std::string& note : *notes) note_once(program.notes, note);
  if (result.end.outlived_by > 0)
    note_once(program.notes, fmt::format("{} of its processes still ran under valgrind after its end: not counted",
                                         result.end.outlived_by));
}

/// What stands before the first run: notes, and the metrics that no run can give.
void add_status(const SimulationRequest& request, const SourceStatus& status, SimulatedProgram& program,
                std::map<Metric, std::string>& refused) {
  program.notes = session_notes(SessionMode::simulated);
  if (find_counter_plugin(kPreloaded).file.empty())
    program.notes.push_back(fmt::format("{} is not there: {}", kPreloaded, kUnloadedLoses));
  for (const Metric metric : request.metrics) {
    const Ability able = ability(status, metric);
    if (able.available) continue;
    refused[metric] = able.reason;
    program.cure = able.cure;
  }
}

/// Adds what a run gave; or returns why it gave nothing.
std::string add_result(const Run& run, const RunResult& result, const SimulationRequest& request, FlopCounter* counter,
                       SimulatedProgram& program) {
  if (result.fatal) program.cure = result.fatal->cure;
  std::string failure = failure_of(result, request);
  if (!failure.empty()) return failure;
  const CacheGeometry cache = boundary(request.caches, run.level).value_or(CacheGeometry{});
  const Sums sums = sums_of(result, counter, cache);
  for (const auto& [path, sum] : sums.by_path)
    add_run(run, sum, request, path.empty() ? program.whole : program.regions[path]);
  add_notes(result, program);
  for (const std::string& note : sums.notes) note_once(program.notes, note);
  return "";
}

}  // namespace

SourceStatus simulation_status(const CacheGeometries& caches) { return CallgrindSource(caches, "").status(); }

SimulatedProgram simulate_program(const SimulationRequest& request) {
  if (request.argv.empty()) throw std::invalid_argument("the command line is empty; it needs a program");
  if (request.metrics.empty()) throw std::invalid_argument("a simulation of no quantities: metrics is empty");
  const SourceStatus status = simulation_status(request.caches);
  SimulatedProgram program;
  std::map<Metric, std::string> refused;
  add_status(request, status, program, refused);
  for (const Run& run : runs_for(request, status)) {
    std::string failure = "the program was interrupted under valgrind";
    if (!program.end.interrupted) {
      std::unique_ptr<FlopCounter> counter;
      if (run.counts_flop) counter = std::make_unique<FlopCounter>();
      for (const char* own : {kPreloaded, kListener})
        if (counter) counter->ignore(own);
      const RunResult result = run_once(request, run.level);
      ++program.runs;
      program.end = result.end;
      failure = add_result(run, result, request, counter.get(), program);
    }
    if (failure.empty()) continue;
    if (run.level != Metric::flop) refused[run.level] = failure;
    if (run.counts_flop) refused[Metric::flop] = failure;
  }
  for (const Metric metric : request.metrics) {
    const auto why = refused.find(metric);
    const std::string reason = why != refused.end() ? why->second : "it did not run in the simulation of this level";
    refuse(program.whole, metric, reason);
    for (auto& [path, work] : program.regions) refuse(work, metric, reason);
  }
  return program;
}

}  // namespace gable::perf
