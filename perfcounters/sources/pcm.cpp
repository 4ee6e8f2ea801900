// See pcm.h.
#include "perfcounters/sources/pcm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "common/number.h"
#include "perfcounters/sources/known_work.h"

namespace gable::perf {
namespace {

constexpr const char* kProgram = "pcm-raw";
constexpr const char* kProvides = "W and Q(dram) of the whole machine on Intel server CPUs";
constexpr double kLineBytes = 64;
constexpr double kCountedSeconds = 1;  ///< seconds of work by which the two subtracted processes differ

// The other bits of pcm-raw's event register: count in user and kernel mode, enabled.
constexpr std::uint64_t kCoreBits = 0x430000;
constexpr std::uint64_t kBoxBits = 0x400000;

constexpr int kSkylakeServer = 85;  ///< and Cascade Lake

struct MemoryEncoding {
  int model;
  std::vector<std::pair<const char*, std::uint64_t>> reads_and_writes;  ///< name, umask << 8 | event
};

const MemoryEncoding* memory_encoding(const Machine& machine) {
  static const std::vector<MemoryEncoding> known{
      {kSkylakeServer, {{"cas_rd", 0x0304}, {"cas_wr", 0x0c04}}},  // Skylake-SP, Cascade Lake
      {106, {{"cas_rd", 0x0f04}, {"cas_wr", 0x3004}}},             // Ice Lake-SP
      {143, {{"cas_rd", 0xcf05}, {"cas_wr", 0xf005}}},             // Sapphire Rapids
      {207, {{"cas_rd", 0xcf05}, {"cas_wr", 0xf005}}},             // Emerald Rapids
      {173,                                                        // Granite Rapids: two sub-channels
       {{"cas_rd_sch0", 0xcf05}, {"cas_wr_sch0", 0xf005}, {"cas_rd_sch1", 0xcf06}, {"cas_wr_sch1", 0xf006}}},
  };
  if (machine.cpu.vendor != "GenuineIntel" || machine.cpu.family != 6) return nullptr;
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const MemoryEncoding& e) { return e.model == machine.cpu.model; });
  return found == known.end() ? nullptr : &*found;
}

// Five events at once, one more than Skylake's and Cascade Lake's threads have counters.
const std::vector<std::pair<const char*, std::pair<std::uint64_t, double>>>& flop_encodings() {
  static const std::vector<std::pair<const char*, std::pair<std::uint64_t, double>>> known{
      {"fp_scalar", {0x03c7, 1}},
      {"fp_128_double", {0x04c7, 2}},
      {"fp_4_flops", {0x18c7, 4}},
      {"fp_8_flops", {0x60c7, 8}},
      {"fp_512_single", {0x80c7, 16}}};
  return known;
}

ChildResult run_pcm(const std::vector<std::string>& argv, double seconds_limit) {
  return run_child(argv, seconds_limit, {{"OMP_NUM_THREADS", "1"}});
}

bool is_wanted(const std::vector<Metric>& metrics, Metric metric) {
  return std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
}

}  // namespace

std::vector<PcmEvent> pcm_events(const Machine& machine) {
  const MemoryEncoding* memory = memory_encoding(machine);
  if (memory == nullptr) return {};
  std::vector<PcmEvent> events;
  if (machine.cpu.model != kSkylakeServer)
    for (const auto& [name, encoding] : flop_encodings())
      events.push_back({"core", name, kCoreBits | encoding.first, Metric::flop, encoding.second});
  for (const auto& [name, config] : memory->reads_and_writes)
    events.push_back({"imc", name, kBoxBits | config, Metric::dram_bytes, kLineBytes});
  return events;
}

std::map<std::string, double> parse_pcm_raw(const std::string& text) {
  std::map<std::string, double> sums;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream words(line);
    for (std::string field; std::getline(words, field, ',');) fields.push_back(field);
    const bool dated = !fields.empty() && fields[0].size() == 10 && fields[0][4] == '-' && fields[0][7] == '-';
    if (!dated || fields.size() < 5) continue;
    if (fields.size() < 6)
      throw std::invalid_argument(fmt::format("pcm-raw's line '{}' has no counts; it needs one a unit", line));
    double& sum = sums[fields[2]];
    for (std::size_t i = 5; i < fields.size(); ++i) {
      double value = 0;
      if (parse_number(fields[i], value) == 0)
        throw std::invalid_argument(fmt::format("pcm-raw's line '{}': '{}' is no count", line, fields[i]));
      sum += value;
    }
  }
  return sums;
}

PcmSource::PcmSource(Machine machine, std::string helper, StartChild start)
    : machine_(std::move(machine)),
      helper_(std::move(helper)),
      start_(start ? std::move(start) : run_pcm),
      events_(pcm_events(machine_)) {}

SourceStatus PcmSource::status() const {
  constexpr const char* kRegisters = "/dev/cpu/0/msr";
  SourceStatus status{.name = name(), .available = false, .provides = kProvides, .reason = {}, .cure = {}};
  const int file = open(kRegisters, O_RDWR | O_CLOEXEC);
  const int error = file < 0 ? errno : 0;
  if (file >= 0) close(file);
  if (events_.empty()) {
    status.reason = fmt::format("the memory controllers of this CPU ({}, family {}, model {}) are not known",
                                machine_.cpu.vendor, machine_.cpu.family, machine_.cpu.model);
    status.cure = "an Intel server CPU from Skylake to Granite Rapids; elsewhere perf_event or --counters simulated";
  } else if (find_program(kProgram).empty()) {
    status.reason = fmt::format("no program {} on the PATH", kProgram);
    status.cure = "install Intel PCM (apt-get install pcm; it lies in /usr/sbin)";
  } else if (error != 0) {
    status.reason = fmt::format("{}: {}", kRegisters, std::strerror(error));
    status.cure = error == ENOENT
                      ? "load the msr module (modprobe msr) on bare metal; a virtual machine does not expose "
                        "these registers"
                      : "run as root, or give the program CAP_SYS_RAWIO and access to /dev/cpu/*/msr";
  }
  status.available = status.reason.empty();
  for (const Metric metric : {Metric::flop, Metric::dram_bytes}) {
    const bool known =
        std::any_of(events_.begin(), events_.end(), [&](const PcmEvent& event) { return event.metric == metric; });
    const bool lacks = status.available && !known;
    status.abilities.push_back({metric, status.available && known,
                                lacks ? "this CPU's threads have too few counters for it" : status.reason,
                                lacks ? "perf_event, with simultaneous multithreading off" : status.cure});
  }
  return status;
}

PassPlan PcmSource::prepare(const CountOptions&) {
  return {2, "two child processes a repetition, with few and with many runs of the workload"};
}

PcmSource::Sums PcmSource::run(const Workload& workload, int repetitions, double seconds_limit) const {
  std::vector<std::string> argv{kProgram, "0", "-tr", "-silent", "-csv"};
  for (const PcmEvent& event : events_) {
    argv.emplace_back("-e");
    argv.push_back(fmt::format("{}/config={:#x},name={}", event.unit, event.config, event.name));
  }
  argv.emplace_back("--");
  for (std::string& word : workload.child({.repetitions = repetitions})) argv.push_back(std::move(word));
  const ChildResult child = start_(argv, seconds_limit);
  if (!child.succeeded()) return {{}, fmt::format("{} failed: {}", kProgram, child.failure())};
  Sums sums;
  try {
    sums.counts = parse_pcm_raw(child.output);
  } catch (const std::invalid_argument& error) {
    return {{}, error.what()};
  }
  for (const PcmEvent& event : events_)
    if (sums.counts.count(event.name) == 0) return {{}, fmt::format("{} gave no counts of {}", kProgram, event.name)};
  return sums;
}

std::map<Metric, Quantity> PcmSource::difference(const Workload& workload, double seconds_limit) const {
  constexpr int kMaxRuns = 100'000;
  const double runs = workload.seconds > 0 ? kCountedSeconds / workload.seconds : 1;
  const int more = std::clamp(static_cast<int>(std::ceil(runs)), 1, kMaxRuns);
  const Sums few = run(workload, 1, seconds_limit);
  const Sums many = few.reason.empty() ? run(workload, 1 + more, seconds_limit) : Sums{};
  const std::string reason = few.reason.empty() ? many.reason : few.reason;
  std::map<Metric, Quantity> values;
  for (const PcmEvent& event : events_) {
    Quantity& value = values[event.metric];
    if (!reason.empty()) {
      value = {.reason = reason};
      continue;
    }
    const double counted = (many.counts.at(event.name) - few.counts.at(event.name)) / more;
    value.value = value.value.value_or(0) + event.weight * counted;
  }
  for (auto& [metric, value] : values)
    if (value.value && *value.value < 0)
      value = {.reason = "more was counted with fewer runs: something else used the machine meanwhile"};
  return values;
}

Reading PcmSource::measure(const Workload& workload, const CountOptions& options) {
  if (!workload.child)
    throw std::invalid_argument("pcm counts around a process: Workload::child must give its command line");
  Reading reading{
      .source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = prepare(options)};
  std::map<Metric, std::vector<Quantity>> taken;
  const bool cold = static_cast<bool>(workload.flush);
  for (int i = 0; i < std::max(1, options.repetitions) && !cold; ++i)
    for (auto& [metric, value] : difference(workload, options.seconds_limit)) taken[metric].push_back(std::move(value));
  for (const Metric metric : options.metrics) {
    const auto found = taken.find(metric);
    if (found != taken.end())
      reading.quantities[metric] = combine(found->second);
    else if (cold)
      reading.quantities[metric] = {.reason = "pcm can't tell cold runs from the sweeps between them"};
    else
      reading.quantities[metric] = {.reason = fmt::format("pcm gives no {}", to_string(metric))};
  }
  if (is_wanted(options.metrics, Metric::flop) && workload.dtype == "bf16")
    reading.quantities[Metric::flop] = {.reason = "Intel's bf16 dot products and AMX have no event"};
  return reading;
}

std::vector<KnownWork> PcmSource::known_work() const {
  constexpr double kTolerance = 0.05;  // the whole machine is counted
  constexpr std::size_t kStep = 256;
  if (helper_.empty()) return {};
  const std::size_t beyond =
      4 * std::max(machine_.caches.l3.bytes, std::size_t{32} << 20) / sizeof(float) / kStep * kStep;
  std::vector<KnownWork> all = known_sweeps_in_child(helper_, beyond, false, kTolerance);
  for (KnownWork& chain : known_chains_in_child(helper_, kTolerance)) all.push_back(std::move(chain));
  return all;
}

}  // namespace gable::perf
