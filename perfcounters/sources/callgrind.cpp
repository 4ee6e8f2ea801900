// See callgrind.h.
#include "perfcounters/sources/callgrind.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "perfcounters/sources/child_process.h"
#include "perfcounters/sources/counted_region.h"
#include "perfcounters/sources/known_work.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

constexpr std::array kLevels{Metric::l2_bytes, Metric::l3_bytes, Metric::dram_bytes};
constexpr const char* kProvides = "Q(l2), Q(l3) and Q(dram) of CPU work, from a cache simulation";
// A lower bound of a child's time, used to refuse hopeless workloads early; the clock enforces the limit itself. Memory
// accesses take 40 to 90 times as long under the simulation. Fused multiply-adds are far slower, since valgrind
// computes them lane by lane: 30 ns per FLOP. Each workload runs twice: the first run warms caches and creates threads
// and pages.
constexpr double kLeastSlowdown = 30;
constexpr double kLeastSecondsPerFlop = 10e-9;
constexpr int kRuns = 2;

double least_seconds(const Workload& workload) {
  return std::max(workload.seconds * kLeastSlowdown, workload.flop * kLeastSecondsPerFlop * kRuns);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::size_t bytes_of(const std::string& text) {
  std::size_t end = 0;
  std::size_t value = 0;
  try {
    value = std::stoul(text, &end);
  } catch (const std::exception&) {
    return 0;
  }
  const char unit = end < text.size() ? text[end] : ' ';
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

std::optional<CacheGeometry> geometry_in(const fs::path& folder) {
  const CacheGeometry geometry{.bytes = bytes_of(first_line(folder / "size")),
                               .ways = static_cast<int>(bytes_of(first_line(folder / "ways_of_associativity"))),
                               .line = static_cast<int>(bytes_of(first_line(folder / "coherency_line_size")))};
  if (geometry.bytes == 0 || geometry.ways == 0 || geometry.line == 0) return std::nullopt;
  return geometry;
}

std::string described(const CacheGeometry& geometry) {
  return fmt::format("{} KiB in {} ways", geometry.bytes >> 10, geometry.ways);
}

/// A temporary folder, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "gable_callgrind_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error(fmt::format("'{}': no temporary folder can be made there", pattern));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// The dump whose description names `trigger`.
std::map<std::string, double> dump_of(const fs::path& folder, const std::string& trigger) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find("Client Request: " + trigger + "\n") != std::string::npos) return callgrind_totals(text.str());
  }
  return {};
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

CacheGeometries read_cache_geometries(const std::string& folder) {
  CacheGeometries caches;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string level = first_line(entry.path() / "level");
    const bool instructions = first_line(entry.path() / "type") == "Instruction";
    if (level == "1") (instructions ? caches.l1i : caches.l1d) = geometry_in(entry.path());
    if (level == "2") caches.l2 = geometry_in(entry.path());
    if (level == "3") caches.l3 = geometry_in(entry.path());
  }
  return caches;
}

CacheGeometry with_power_of_two_sets(const CacheGeometry& real) {
  const std::size_t sets = std::max<std::size_t>(1, real.sets());
  if (std::has_single_bit(sets)) return real;
  const std::size_t below = std::bit_floor(sets);
  const double ratio = static_cast<double>(sets) / static_cast<double>(below);
  const std::size_t chosen = ratio > std::sqrt(2.0) ? 2 * below : below;
  const std::size_t set_line = chosen * static_cast<std::size_t>(real.line);
  const std::size_t ways = std::max<std::size_t>(1, real.bytes / set_line);
  return {.bytes = ways * set_line, .ways = static_cast<int>(ways), .line = real.line};
}

std::string to_option(const CacheGeometry& geometry) {
  return fmt::format("{},{},{}", geometry.bytes, geometry.ways, geometry.line);
}

std::map<std::string, double> callgrind_totals(const std::string& profile) {
  std::vector<std::string> events;
  std::map<std::string, double> totals;
  std::istringstream lines(profile);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "events:") {
      while (words >> word) events.push_back(word);
    } else if (word == "totals:") {
      // callgrind omits trailing zeros.
      for (const std::string& event : events) {
        double value = 0;
        words >> value;
        totals[event] = words ? value : 0;
      }
    }
  }
  if (totals.empty())
    throw std::invalid_argument("a callgrind profile needs the lines 'events:' and 'totals:'; this text has not both");
  return totals;
}

double callgrind_bytes(const std::map<std::string, double>& region, const std::map<std::string, double>& residue,
                       bool cold, int line) {
  double lines = sum_of(region, {"DLmr", "DLmw", "ILdmr", "DLdmr", "DLdmw"});
  if (cold) lines += sum_of(residue, {"ILdmr", "DLdmr", "DLdmw"});
  return lines * line;
}

CallgrindSource::CallgrindSource(CacheGeometries caches, std::string helper)
    : caches_(caches), helper_(std::move(helper)) {}

std::optional<CacheGeometry> CallgrindSource::boundary(Metric metric) const {
  if (metric == Metric::l2_bytes) return caches_.l1d;
  if (metric == Metric::l3_bytes) return caches_.l3 ? caches_.l2 : std::nullopt;
  if (metric == Metric::dram_bytes) return caches_.l3 ? caches_.l3 : caches_.l2;
  return std::nullopt;
}

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
  if (status.reason.empty() && find_program("valgrind").empty()) {
    status.reason = "no program valgrind on the PATH";
    status.cure = "install valgrind (apt-get install valgrind)";
  }
  if (status.reason.empty() && (!caches_.l1i || !caches_.l1d || (!caches_.l2 && !caches_.l3))) {
    status.reason = "the system does not describe its caches (/sys/devices/system/cpu/cpu0/cache)";
    status.cure = "a kernel, or a container runtime, that shows that folder";
  }
  status.available = status.reason.empty();
  for (const Metric metric : kLevels) {
    const auto cache = boundary(metric);
    Ability one{metric, status.available && cache.has_value(), status.reason, status.cure};
    if (status.available && !cache) one.reason = "this CPU has no such level";
    if (one.available) {
      const CacheGeometry simulated = with_power_of_two_sets(*cache);
      if (simulated != *cache)
        one.reason = fmt::format("the cache of {} is simulated as {}: valgrind needs a power of two of sets",
                                 described(*cache), described(simulated));
    }
    status.abilities.push_back(std::move(one));
  }
  return status;
}

PassPlan CallgrindSource::prepare(const CountOptions& options) {
  int levels = 0;
  for (const Metric metric : options.metrics) levels += boundary(metric).has_value() ? 1 : 0;
  return {levels, fmt::format("a child process for each of {} levels", levels)};
}

Quantity CallgrindSource::simulate(Metric metric, const Workload& workload, const CountOptions& options) const {
  const std::optional<CacheGeometry> real = boundary(metric);
  if (!real) return {.reason = fmt::format("callgrind gives no {} here", to_string(metric))};
  if (least_seconds(workload) > options.seconds_limit)
    return {.reason = fmt::format("it would run for {:.0f} s or more under callgrind; the limit is {:.0f} s",
                                  least_seconds(workload), options.seconds_limit)};
  const bool cold = static_cast<bool>(workload.flush);
  const CacheGeometry simulated = with_power_of_two_sets(*real);
  // Where the L1 is simulated as the last level, the level in front of it holds two lines and filters nothing.
  const CacheGeometry above =
      metric == Metric::l2_bytes ? CacheGeometry{128, 2, real->line} : with_power_of_two_sets(*caches_.l1d);
  const TemporaryFolder folder;
  std::vector<std::string> argv{"valgrind",
                                "-q",
                                "--tool=callgrind",
                                "--vgdb=no",
                                "--cache-sim=yes",
                                "--simulate-wb=yes",
                                "--instr-atstart=no",
                                "--I1=" + to_option(with_power_of_two_sets(*caches_.l1i)),
                                "--D1=" + to_option(above),
                                "--LL=" + to_option(simulated),
                                "--callgrind-out-file=" + (folder.path() / "profile").string()};
  for (std::string& word : workload.child({.repetitions = 1, .cold = cold, .markers = true}))
    argv.push_back(std::move(word));
  const ChildResult child = run_child(argv, options.seconds_limit, {{"OMP_NUM_THREADS", "1"}});
  if (!child.succeeded()) return {.reason = "the run under callgrind failed: " + child.failure()};
  const auto region = dump_of(folder.path(), "region");
  const auto residue = dump_of(folder.path(), "residue");
  if (region.empty() || residue.empty()) return {.reason = "callgrind wrote no profile of the marked region"};
  const double bytes = callgrind_bytes(region, residue, cold, simulated.line);
  return {.value = bytes, .q1 = bytes, .q3 = bytes, .note = ability(status(), metric).reason};
}

Reading CallgrindSource::measure(const Workload& workload, const CountOptions& options) {
  if (!workload.child)
    throw std::invalid_argument("callgrind counts in a process of its own: Workload::child must give its command line");
  Reading reading{
      .source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = prepare(options)};
  std::map<Metric, std::future<Quantity>> levels;  // each waits for its own process
  for (const Metric metric : options.metrics)
    levels[metric] = std::async(std::launch::async, [&, metric] { return simulate(metric, workload, options); });
  for (auto& [metric, level] : levels) reading.quantities[metric] = level.get();
  return reading;
}

std::vector<KnownWork> CallgrindSource::known_work() const {
  constexpr std::size_t kElements = std::size_t{1} << 20;
  constexpr double kTolerance = 0.02;
  if (helper_.empty()) return {};
  return known_sweeps_in_child(helper_, kElements, true, kTolerance);
}

}  // namespace gable::perf
