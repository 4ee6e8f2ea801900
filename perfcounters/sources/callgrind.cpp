// See callgrind.h.
#include "perfcounters/sources/callgrind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "perfcounters/machine/files.h"
#include "perfcounters/sources/callgrind_profile.h"
#include "perfcounters/sources/child_process.h"
#include "perfcounters/sources/counted_region.h"
#include "perfcounters/sources/instruction_flop.h"
#include "perfcounters/sources/known_work.h"

namespace gable::perf {
namespace {

constexpr std::array kLevels{Metric::l2_bytes, Metric::l3_bytes, Metric::dram_bytes};
constexpr const char* kProvides =
    "W of CPU work, by its instructions; Q(l2), Q(l3) and Q(dram), from a cache simulation";
// A lower bound of a child's time, used to refuse hopeless workloads early; the clock enforces the limit itself. Memory
// accesses take 40 to 90 times as long under the simulation. Fused multiply-adds are far slower, since valgrind
// computes them lane by lane: 30 ns per FLOP. Each workload runs twice: the first run warms caches and creates threads
// and pages.
constexpr double kMinSlowdown = 30;
constexpr double kMinSecondsPerFlop = 10e-9;
constexpr int kRuns = 2;
constexpr double kVersionSeconds = 10;  // for valgrind to say its version

double least_seconds(const Workload& workload) {
  return std::max(workload.seconds * kMinSlowdown, workload.flop * kMinSecondsPerFlop * kRuns);
}

std::string described(const std::optional<CacheGeometry>& cache) { return cache ? to_option(*cache) : "none"; }

/// A build of a program, by the size and the time of its file. Empty where there is no such file.
std::string build_of(const std::string& program) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(program, error);
  const auto written = error ? std::filesystem::file_time_type{} : std::filesystem::last_write_time(program, error);
  return error ? "" : fmt::format("{} B of {}", bytes, written.time_since_epoch().count());
}

double sum_of(const std::map<std::string, double>& totals, std::initializer_list<const char*> events) {
  double sum = 0;
  for (const char* event : events) {
    const auto found = totals.find(event);
    if (found != totals.end()) sum += found->second;
  }
  return sum;
}

}  // namespace

double callgrind_bytes(const std::map<std::string, double>& region, const std::map<std::string, double>& residue,
                       bool cold, int line) {
  double lines = sum_of(region, {"DLmr", "DLmw", "ILdmr", "DLdmr", "DLdmw"});
  if (cold) lines += sum_of(residue, {"ILdmr", "DLdmr", "DLdmw"});
  return lines * line;
}

CallgrindSource::CallgrindSource(CacheGeometries caches, std::string helper)
    : caches_(caches), helper_(std::move(helper)) {}

SourceStatus CallgrindSource::status() const {
  SourceStatus status{.name = name(), .available = false, .provides = kProvides, .reason = {}, .cure = {}};
#if defined(__SANITIZE_ADDRESS__)
  status.reason = "valgrind can't run a program that was built with AddressSanitizer";
  status.cure = "use a build without sanitizers";
#endif
  if (status.reason.empty() && !can_mark_regions()) {
    status.reason = "this build of gable can't mark a region: valgrind's header was not there when it was built";
    status.cure = "install valgrind (apt-get install valgrind) and build again";
  }
  if (status.reason.empty()) {
    ValgrindStatus valgrind = valgrind_status();
    status.reason = std::move(valgrind.reason);
    status.cure = std::move(valgrind.cure);
  }
  const bool runs = status.reason.empty();
  const bool has_caches = caches_.l1i && caches_.l1d && (caches_.l2 || caches_.l3);
  status.available = runs && (has_caches || has_disassembler());
  Ability flop{Metric::flop, runs && has_disassembler(), status.reason, status.cure};
  if (runs && !has_disassembler()) {
    flop.reason = status.reason = disassembler_reason();
    flop.cure = status.cure = disassembler_cure();
  }
  status.abilities.push_back(std::move(flop));
  if (runs && !has_caches) {
    status.reason = "the system does not describe its caches (/sys/devices/system/cpu/cpu0/cache)";
    status.cure = "a kernel, or a container runtime, that shows that folder";
  }
  for (const Metric metric : kLevels) {
    Ability one{metric, runs && has_caches && boundary(caches_, metric), {}, {}};
    if (one.available) {
      one.reason = rounding_note(caches_, metric);
    } else if (runs && has_caches) {
      one.reason = "this CPU has no such level";
    } else {
      one.reason = status.reason;
      one.cure = status.cure;
    }
    status.abilities.push_back(std::move(one));
  }
  return status;
}

struct CallgrindSource::Simulation {
  Metric level = Metric::flop;
  bool counts_flop = false;
};

/// W comes from the first level's run, since it is the same in each.
std::vector<CallgrindSource::Simulation> CallgrindSource::simulations(const std::vector<Metric>& metrics) const {
  std::vector<Simulation> all;
  for (const Metric metric : metrics)
    if (boundary(caches_, metric)) all.push_back({.level = metric});
  if (std::find(metrics.begin(), metrics.end(), Metric::flop) != metrics.end()) {
    if (all.empty()) all.emplace_back();
    all.front().counts_flop = true;
  }
  return all;
}

PassPlan CallgrindSource::prepare(const CountOptions& options) {
  const auto runs = static_cast<int>(simulations(options.metrics).size());
  return {runs, fmt::format("{} child process{}, one for each level; W from the first", runs, runs == 1 ? "" : "es")};
}

std::map<Metric, Quantity> CallgrindSource::simulate(const Simulation& simulation, const Workload& workload,
                                                     const CountOptions& options) const {
  const Metric level = simulation.level;
  const bool counts_flop = simulation.counts_flop;  // clang before 16 captures no structured binding
  const auto refused = [&](const std::string& reason) {
    std::map<Metric, Quantity> all{{level, {.reason = reason}}};
    if (counts_flop) all[Metric::flop] = {.reason = reason};
    return all;
  };
  if (least_seconds(workload) > options.seconds_limit)
    return refused(fmt::format("it would run for {:.0f} s or more under callgrind; the limit is {:.0f} s",
                               least_seconds(workload), options.seconds_limit));
  const bool cold = static_cast<bool>(workload.flush);
  std::optional<TemporaryFolder> folder;
  try {
    folder.emplace("gable_callgrind");
  } catch (const std::runtime_error& error) {
    return refused(error.what());
  }
  const std::string file = folder->path() + "/profile";
  std::vector<std::string> argv = callgrind_command(caches_, level, valgrind_path(file));
  argv.emplace_back("--instr-atstart=no");
  for (std::string& word : workload.child({.repetitions = 1, .cold = cold, .markers = true}))
    argv.push_back(std::move(word));
  const ChildResult child = run_child(argv, options.seconds_limit, {{"OMP_NUM_THREADS", "1"}});
  if (!child.succeeded()) {
    const auto instruction = find_unknown_instruction(child.errors);
    return refused("the run under callgrind failed: " +
                   (instruction ? instruction->reason + "; " + instruction->cure : child.failure()));
  }
  CallgrindProfile profile;
  try {
    add_callgrind_profile(file, profile);
  } catch (const std::exception& error) {
    return refused(std::string("the profile of callgrind can't be read: ") + error.what());
  }
  if (profile.count("region") == 0 || profile.count("residue") == 0)
    return refused("callgrind wrote no profile of the marked region");
  const LabelledProfile& region = profile.at("region");
  std::map<Metric, Quantity> all;
  if (level != Metric::flop) {
    const int line = boundary(caches_, level)->line;
    const double bytes = callgrind_bytes(region.totals, profile.at("residue").totals, cold, line);
    all[level] = {.value = bytes, .q1 = bytes, .q3 = bytes, .note = rounding_note(caches_, level)};
  }
  if (counts_flop) {
    const FlopCount count = FlopCounter().count(region);
    const double flop = count.total();
    all[Metric::flop] = count.refusal().empty() ? Quantity{.value = flop, .q1 = flop, .q3 = flop, .note = count.note()}
                                                : Quantity{.reason = count.refusal()};
  }
  return all;
}

Reading CallgrindSource::measure(const Workload& workload, const CountOptions& options) {
  if (!workload.child)
    throw std::invalid_argument("callgrind counts in a process of its own: Workload::child must give its command line");
  Reading reading{
      .source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = prepare(options)};
  for (const Metric metric : options.metrics)
    reading.quantities[metric] = {.reason = fmt::format("callgrind gives no {} here", to_string(metric))};
  if (!has_disassembler()) reading.quantities[Metric::flop] = {.reason = disassembler_reason()};
  std::vector<std::future<std::map<Metric, Quantity>>> runs;  // each waits for its own process
  for (const Simulation& one : simulations(options.metrics))
    runs.push_back(std::async(std::launch::async, [&, one] { return simulate(one, workload, options); }));
  for (auto& run : runs)
    for (auto& [metric, quantity] : run.get()) reading.quantities[metric] = std::move(quantity);
  return reading;
}

std::string CallgrindSource::calibration_identity() const {
  const std::string build = build_of(helper_);
  const ChildResult version = run_child({"valgrind", "--version"}, kVersionSeconds);
  if (build.empty() || !version.succeeded()) return "";
  return fmt::format("callgrind; gable {}, {}; {}, {}; caches {} {} {} {}", GABLE_EXACT_VERSION, build,
                     version.output.substr(0, version.output.find('\n')), disassembler_version(),
                     described(caches_.l1i), described(caches_.l1d), described(caches_.l2), described(caches_.l3));
}

std::vector<KnownWork> CallgrindSource::known_work() const {
  constexpr std::size_t kElements = std::size_t{1} << 20;
  constexpr double kFlopTolerance = 0.01;
  constexpr double kBytesTolerance = 0.02;
  constexpr std::int64_t kIterations = 20'000;  // valgrind takes 30 ns for a FLOP
  if (helper_.empty()) return {};
  std::vector<KnownWork> all = known_sweeps_in_child(helper_, kElements, true, kBytesTolerance);
  for (std::size_t i = 0; i < known_sweeps().size(); ++i)
    all[i].expected[Metric::flop] = known_sweeps()[i].flop_per_element * static_cast<double>(kElements);
  for (KnownWork& chain : known_chains_in_child(helper_, kFlopTolerance, kIterations))
    if (chain.name.find("avx512") == std::string::npos) all.push_back(std::move(chain));  // valgrind has no AVX-512
  return all;
}

}  // namespace gable::perf
