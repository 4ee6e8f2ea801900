// Event tables, arithmetic, sysfs parsing and system calls behind perf_event.h, in this order.
#include "perfcounters/sources/perf_event.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "common/number.h"
#include "perfcounters/machine.h"
#include "perfcounters/sources/known_work.h"
#include "perfcounters/sources/perf_group.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "/sys/bus/event_source/devices";
constexpr double kLineBytes = 64;
constexpr const char* kArmImplementer = "0x41";
constexpr const char* kAmxBusy = "exe.amx_busy";
constexpr const char* kProvides = "W of floating-point arithmetic, Q(dram) of the whole machine";

Quantity refused(std::string reason) { return {.reason = std::move(reason)}; }

// Empty when the group's values are valid.
std::string refusal(const RawGroup& group, std::size_t expected_values) {
  if (group.time_running == 0) return "the counters never ran: the PMU is in use by another program";
  if (group.time_running != group.time_enabled)
    return fmt::format(
        "the counters ran {} of {} ns: they were shared (multiplexed), and extrapolated counts are no counts",
        group.time_running, group.time_enabled);
  if (group.values.size() != expected_values)
    return fmt::format("{} values were read for {} events", group.values.size(), expected_values);
  constexpr std::uint64_t kWrapped = std::uint64_t{1} << 63;
  for (const std::uint64_t value : group.values)
    if (value >= kWrapped) return fmt::format("a counter overflowed: it reads {:#x}", value);
  return "";
}

// ---- sysfs

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

bool starts_with(const std::string& text, const char* prefix) {
  return text.compare(0, std::strlen(prefix), prefix) == 0;
}

MemoryEvent event_of_box(const fs::path& box, const std::string& name, std::uint64_t config) {
  MemoryEvent event{.box = box.filename().string(), .name = name, .config = config, .cpus = {}};
  event.type = static_cast<std::uint32_t>(std::stoul(first_line(box / "type").value_or("0")));
  event.cpus = parse_cpu_list(first_line(box / "cpumask").value_or("0"));
  return event;
}

// sysfs gives the scale in the unit beside it; Intel's boxes say 6.103515625e-5 MiB, which is 64 bytes.
double bytes_per_count(const fs::path& events, const std::string& name) {
  const auto scale = first_line(events / (name + ".scale"));
  if (!scale) return kLineBytes;
  const std::string unit = first_line(events / (name + ".unit")).value_or("MiB");
  double value = 0;
  if (parse_number(*scale, value) == 0)
    throw std::invalid_argument(fmt::format("'{}' is no scale of a counter", *scale));
  return value * (unit == "MiB" ? 1048576.0 : 1.0);
}

// cas_count_read and cas_count_write, or what newer boxes have instead: one of each a sub-channel (..._sch0, ..._sch1).
void add_intel_box(const fs::path& box, std::vector<MemoryEvent>& found) {
  std::error_code ignored;
  for (const std::string direction : {"cas_count_read", "cas_count_write"}) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(box / "events", ignored)) {
      const std::string name = entry.path().filename().string();
      if (starts_with(name, direction.c_str()) && name.find('.') == std::string::npos) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    if (!names.empty() && names.front() == direction) names.resize(1);
    for (const std::string& name : names) {
      const std::string text = first_line(box / "events" / name).value_or("");
      found.push_back(event_of_box(box, name, parse_event_config(text)));
      found.back().bytes_per_count = bytes_per_count(box / "events", name);
    }
  }
}

void add_amd_box(const fs::path& box, std::vector<MemoryEvent>& found) {
  constexpr std::uint64_t kCasCommand = 0x0a;
  found.push_back(event_of_box(box, "umc_cas_cmd.rd", 1U << 8 | kCasCommand));
  found.push_back(event_of_box(box, "umc_cas_cmd.wr", 2U << 8 | kCasCommand));
}

// ---- system calls

class LinuxPerf final : public PerfSystem {
 public:
  int open(const PerfEvent& event) override {
    perf_event_attr attributes{};
    attributes.size = sizeof(attributes);
    attributes.type = event.type;
    attributes.config = event.config;
    if (event.leader < 0) attributes.disabled = 1;
    attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    if (event.program) {
      attributes.inherit = 1;  // which the kernel does not allow for events that are read as a group
      if (event.leader < 0) attributes.enable_on_exec = 1;
    } else {
      attributes.read_format |= PERF_FORMAT_GROUP;
    }
    if (event.cpu < 0) {  // a thread's own event; a memory controller cannot tell user from kernel
      attributes.exclude_kernel = 1;
      attributes.exclude_hv = 1;
    }
    const long opened =
        syscall(SYS_perf_event_open, &attributes, event.thread, event.cpu, event.leader, PERF_FLAG_FD_CLOEXEC);
    return opened < 0 ? -errno : static_cast<int>(opened);
  }
  void close(int descriptor) override { ::close(descriptor); }
  void start(int leader) override {
    ioctl(leader, PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
    ioctl(leader, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
  }
  void stop(int leader) override { ioctl(leader, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP); }
  RawGroup read(int leader, std::size_t members) override {
    std::vector<std::uint64_t> words(3 + members);  // number, enabled, running, values
    const ssize_t got = ::read(leader, words.data(), words.size() * sizeof(words[0]));
    if (got < static_cast<ssize_t>(3 * sizeof(words[0]))) return {};
    words.resize(static_cast<std::size_t>(got) / sizeof(words[0]));
    return {words[1], words[2], {words.begin() + 3, words.end()}};
  }
  RawGroup read_alone(int descriptor) override {
    std::array<std::uint64_t, 3> words{};  // value, enabled, running
    const ssize_t got = ::read(descriptor, words.data(), sizeof(words));
    if (got != static_cast<ssize_t>(sizeof(words))) return {};
    return {words[1], words[2], {words[0]}};
  }
  std::vector<int> threads() const override {
    std::vector<int> threads;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc/self/task", ignored))
      threads.push_back(std::stoi(entry.path().filename().string()));
    return threads;
  }
};

int open_flop_group(std::span<const FlopEvent> events, int thread, PerfGroup& group) {
  for (const FlopEvent& event : events)
    if (const int error = group.add({.type = PERF_TYPE_RAW, .config = event.config, .thread = thread})) return error;
  return 0;
}

// errno of an event that could not be opened, else 0 and a group for each thread that is alive.
int open_flop_groups(PerfSystem& system, std::span<const FlopEvent> events, std::vector<PerfGroup>& groups) {
  for (const int thread : system.threads()) {
    PerfGroup group(system);
    const int error = open_flop_group(events, thread, group);
    if (error == ESRCH) continue;  // the thread ended after it was listed
    if (error != 0) return error;
    groups.push_back(std::move(group));
  }
  return 0;
}

int paranoid_level() {
  const auto line = first_line("/proc/sys/kernel/perf_event_paranoid");
  return line ? std::atoi(line->c_str()) : 2;
}

bool has_cpu_pmu(const std::string& devices) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(devices, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "cpu" || starts_with(name, "cpu_") || starts_with(name, "armv8_") || starts_with(name, "armv9_"))
      return true;
  }
  return false;
}

int sve_vector_bits() {
#if defined(__aarch64__) && defined(PR_SVE_GET_VL)
  const int bytes = prctl(PR_SVE_GET_VL);
  if (bytes > 0) return (bytes & PR_SVE_VL_LEN_MASK) * 8;
#endif
  return 128;
}

/// f16's events, and AMX's busy cycles, where this CPU has them.
std::vector<FlopEvent> newer_intel_events(const Machine& machine) {
  std::vector<FlopEvent> newer;
  if (machine.cpu.has("avx512_fp16"))
    newer = {{"fp_arith_inst_retired2.scalar_half", 0x01CF, 1, "f16"},
             {"fp_arith_inst_retired2.128b_packed_half", 0x04CF, 8, "f16"},
             {"fp_arith_inst_retired2.256b_packed_half", 0x08CF, 16, "f16"},
             {"fp_arith_inst_retired2.512b_packed_half", 0x10CF, 32, "f16"}};
  if (machine.cpu.has("amx_tile")) newer.push_back({kAmxBusy, 0x02B7, 0});
  return newer;
}

std::vector<std::vector<FlopEvent>> with_newer(std::vector<std::vector<FlopEvent>> groups, const Machine& machine) {
  if (std::vector<FlopEvent> newer = newer_intel_events(machine); !newer.empty()) groups.push_back(std::move(newer));
  return groups;
}

std::vector<std::vector<FlopEvent>> intel_groups(const Machine& machine) {
  // Merged umasks: each sums forms of equal weight, so that five counters see all of f32 and f64.
  return with_newer({{{"fp_arith_inst_retired.scalar", 0x03C7, 1},
                      {"fp_arith_inst_retired.128b_packed_double", 0x04C7, 2},
                      {"fp_arith_inst_retired.4_flops", 0x18C7, 4},
                      {"fp_arith_inst_retired.8_flops", 0x60C7, 8},
                      {"fp_arith_inst_retired.512b_packed_single", 0x80C7, 16}}},
                    machine);
}

std::vector<std::vector<FlopEvent>> intel_groups_by_type(const Machine& machine) {
  return with_newer({{{"fp_arith_inst_retired.scalar_double", 0x01C7, 1, "f64"},
                      {"fp_arith_inst_retired.128b_packed_double", 0x04C7, 2, "f64"},
                      {"fp_arith_inst_retired.256b_packed_double", 0x10C7, 4, "f64"},
                      {"fp_arith_inst_retired.512b_packed_double", 0x40C7, 8, "f64"}},
                     {{"fp_arith_inst_retired.scalar_single", 0x02C7, 1, "f32"},
                      {"fp_arith_inst_retired.128b_packed_single", 0x08C7, 4, "f32"},
                      {"fp_arith_inst_retired.256b_packed_single", 0x20C7, 8, "f32"},
                      {"fp_arith_inst_retired.512b_packed_single", 0x80C7, 16, "f32"}}},
                    machine);
}

// Since Zen 5 the upper bits of the unit mask choose a type, and none chooses all; before, bit 4 was bf16's.
std::vector<std::vector<FlopEvent>> amd_groups(const Machine& machine) {
  constexpr int kZen5Family = 0x1a;
  const bool zen4 = machine.cpu.family < kZen5Family && machine.cpu.has("avx512_bf16");
  return {{{"fp_ret_sse_avx_ops.all", zen4 ? 0x1F03U : 0x0F03U, 1}}};
}

}  // namespace

std::vector<std::vector<FlopEvent>> flop_groups(const Machine& machine, int sve_bits) {
  if (machine.cpu.vendor == "GenuineIntel") return intel_groups(machine);
  if (machine.cpu.vendor == "AuthenticAMD") return amd_groups(machine);
  if (machine.cpu.vendor == kArmImplementer)
    return {{{"fp_scale_ops_spec", 0x80C0, sve_bits / 128.0}, {"fp_fixed_ops_spec", 0x80C1, 1}}};
  return {};
}

std::vector<std::vector<FlopEvent>> flop_groups_by_type(const Machine& machine, int sve_bits) {
  return machine.cpu.vendor == "GenuineIntel" ? intel_groups_by_type(machine) : flop_groups(machine, sve_bits);
}

Quantity flop_from_counts(std::span<const FlopEvent> events, const RawGroup& group) {
  if (std::string reason = refusal(group, events.size()); !reason.empty()) return refused(std::move(reason));
  double flop = 0;
  for (std::size_t i = 0; i < events.size(); ++i)
    flop += events[i].flop_per_count * static_cast<double>(group.values[i]);
  return {.value = flop, .q1 = flop, .q3 = flop};
}

Quantity flop_from_counts(std::span<const FlopEvent> events, std::span<const RawGroup> groups) {
  double flop = 0;
  bool any = false;
  for (const RawGroup& group : groups) {
    // A thread that slept the whole time was never scheduled, nor were its counters.
    if (group.time_enabled == 0 && group.time_running == 0 && group.values.size() == events.size()) continue;
    const Quantity one = flop_from_counts(events, group);
    if (!one.value) return one;
    flop += *one.value;
    any = true;
  }
  if (!any) return refused("no thread was counted");
  return {.value = flop, .q1 = flop, .q3 = flop};
}

std::uint64_t parse_event_config(const std::string& text) {
  std::uint64_t config = 0;
  std::istringstream terms(text);
  for (std::string term; std::getline(terms, term, ',');) {
    const auto equals = term.find('=');
    const std::string key = term.substr(0, equals);
    if (equals == std::string::npos || (key != "event" && key != "umask"))
      throw std::invalid_argument(fmt::format("event term \"{}\"; known are event=N and umask=N", term));
    const std::uint64_t value = std::stoull(term.substr(equals + 1), nullptr, 0);
    config |= key == "event" ? value : value << 8;
  }
  return config;
}

std::vector<MemoryEvent> memory_events(const std::string& devices) {
  std::vector<fs::path> boxes;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(devices, ignored)) boxes.push_back(entry.path());
  std::sort(boxes.begin(), boxes.end());
  std::vector<MemoryEvent> found;
  for (const fs::path& box : boxes) {
    const std::string name = box.filename().string();
    if (starts_with(name, "uncore_imc_")) add_intel_box(box, found);
    if (starts_with(name, "amd_umc_")) add_amd_box(box, found);
  }
  return found;
}

Quantity bytes_from_counts(std::span<const MemoryEvent> events, std::span<const std::vector<RawGroup>> groups) {
  if (events.empty()) return refused("no memory-controller events");
  if (groups.size() != events.size())
    return refused(fmt::format("{} groups were read for {} events", groups.size(), events.size()));
  double bytes = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    for (const RawGroup& group : groups[i]) {
      if (const std::string reason = refusal(group, 1); !reason.empty())
        return refused(events[i].box + "/" + events[i].name + ": " + reason);
      bytes += events[i].bytes_per_count * static_cast<double>(group.values[0]);
    }
  }
  return {.value = bytes, .q1 = bytes, .q3 = bytes};
}

SourceStatus explain_failure(int error, int paranoid, bool virtual_machine, bool has_pmu) {
  SourceStatus status{"perf_event", false, kProvides, "", ""};
  const std::string call =
      fmt::format("perf_event_open: {} (errno {}), perf_event_paranoid = {}", std::strerror(error), error, paranoid);
  if (error == EACCES || error == EPERM) {
    status.reason = call + (paranoid > 2 ? ": this level refuses every unprivileged use" : ": not permitted");
    status.cure =
        "sysctl kernel.perf_event_paranoid=2 for W (0 for Q), or CAP_PERFMON; in a container also a seccomp "
        "profile that allows perf_event_open";
  } else if (error == ENOSYS) {
    status.reason = call + ": the kernel, or the container runtime, has no such call";
    status.cure = "a kernel with CONFIG_PERF_EVENTS, and a seccomp profile that lets the call through";
  } else if (!has_pmu) {
    status.reason =
        call + (virtual_machine ? ": no PMU in this virtual machine" : ": the kernel has no PMU driver for this CPU");
    status.cure = virtual_machine
                      ? "let the hypervisor expose a virtual PMU (KVM: -cpu host,pmu=on), or measure on bare metal"
                      : "a kernel that supports this CPU's PMU";
  } else {
    status.reason = call + ": the PMU does not have this event or has too few counters";
    status.cure = "stop other users of the PMU (perf, the NMI watchdog: sysctl kernel.nmi_watchdog=0)";
  }
  return status;
}

RawGroup PerfGroup::grouped(std::span<const RawGroup> alone) {
  RawGroup group;
  for (const RawGroup& event : alone) {
    if (event.values.size() != 1) continue;  // its count is missing, and so refused
    const double part = static_cast<double>(event.time_running) / static_cast<double>(event.time_enabled);
    if (group.values.empty() ||
        part < static_cast<double>(group.time_running) / static_cast<double>(group.time_enabled)) {
      group.time_enabled = event.time_enabled;
      group.time_running = event.time_running;
    }
    group.values.push_back(event.values.front());
  }
  return group;
}

int open_memory_groups(PerfSystem& system, std::span<const MemoryEvent> events,
                       std::vector<std::vector<PerfGroup>>& groups) {
  for (const MemoryEvent& event : events) {
    groups.emplace_back();
    for (const int cpu : event.cpus) {
      PerfGroup group(system);
      if (const int error = group.add({.type = event.type, .config = event.config, .cpu = cpu})) return error;
      groups.back().push_back(std::move(group));
    }
  }
  return 0;
}

std::vector<std::vector<RawGroup>> read_memory_groups(const std::vector<std::vector<PerfGroup>>& groups) {
  std::vector<std::vector<RawGroup>> raw;
  for (const auto& of_event : groups) {
    raw.emplace_back();
    for (const PerfGroup& group : of_event) raw.back().push_back(group.read());
  }
  return raw;
}

SourceStatus explain_core_failure(const PerfHost& host, int error) {
  return explain_failure(error, host.paranoid, host.machine.system.virtual_machine, has_cpu_pmu(host.devices));
}

SourceStatus explain_memory_failure(const PerfHost& host, int error) {
  return explain_failure(error, host.paranoid, host.machine.system.virtual_machine, true);
}

void add_extra(std::span<const FlopEvent> events, std::span<const RawGroup> groups,
               std::map<std::string, double>& extra) {
  for (std::size_t i = 0; i < events.size(); ++i)
    for (const RawGroup& group : groups)
      if (events[i].flop_per_count == 0 && i < group.values.size())
        extra[events[i].name] += static_cast<double>(group.values[i]);
}

double amx_cycles(const std::map<std::string, double>& extra) {
  const auto busy = extra.find(kAmxBusy);
  return busy == extra.end() ? 0 : busy->second;
}

Quantity without_amx(Quantity flop, const std::map<std::string, double>& extra) {
  const double cycles = amx_cycles(extra);
  if (cycles == 0) return flop;
  return refused(fmt::format("AMX was busy for {:.0f} cycles, and its operations have no event", cycles));
}

PerfHost perf_host() { return {describe_isa_only(), kDevices, paranoid_level(), sve_vector_bits()}; }

std::shared_ptr<PerfSystem> linux_perf_system() { return std::make_shared<LinuxPerf>(); }

PerfEventSource::PerfEventSource(PerfHost host, std::shared_ptr<PerfSystem> system)
    : PerfEventSource(host, std::move(system), flop_groups(host.machine, host.sve_bits)) {}

PerfEventSource::PerfEventSource(PerfHost host, std::shared_ptr<PerfSystem> system,
                                 std::vector<std::vector<FlopEvent>> groups)
    : host_(std::move(host)), system_(std::move(system)), flop_groups_(std::move(groups)) {}

SourceStatus PerfEventSource::status() const {
  SourceStatus status{.name = name(), .available = false, .provides = kProvides, .reason = {}, .cure = {}};
  Ability flop{Metric::flop, false, "", ""};
  Ability dram{Metric::dram_bytes, false, "", ""};
  if (flop_groups_.empty()) {
    flop.reason = fmt::format("no floating-point events are known for the CPU vendor \"{}\"", host_.machine.cpu.vendor);
    flop.cure = "an Intel, AMD or Arm CPU; or rely on analytic W and Q";
  }
  for (const auto& events : flop_groups_) {
    PerfGroup group(*system_);
    if (const int error = open_flop_group(events, 0, group)) {
      const SourceStatus failure = explain_core_failure(host_, error);
      flop.reason = failure.reason;
      flop.cure = failure.cure;
      break;
    }
  }
  flop.available = flop.reason.empty();
  if (flop.available && host_.machine.cpu.vendor == kArmImplementer) flop.reason = "speculative operations count too";

  const std::vector<MemoryEvent> memory = memory_events(host_.devices);
  std::vector<std::vector<PerfGroup>> groups;
  if (memory.empty()) {
    dram.reason = kNoMemoryPmu;
    dram.cure = "a server CPU on bare metal with the uncore driver (modprobe intel_uncore; amd_uncore since Linux 6.8)";
  } else if (const int error = open_memory_groups(*system_, memory, groups)) {
    const SourceStatus failure = explain_memory_failure(host_, error);
    dram.reason = failure.reason;
    dram.cure = failure.cure;
  } else {
    dram.available = true;
  }
  status.available = flop.available || dram.available;
  if (!flop.available || !dram.available) {
    const Ability& missing = flop.available ? dram : flop;
    status.reason = (status.available ? fmt::format("no {}: ", to_string(missing.metric)) : "") + missing.reason;
    status.cure = missing.cure;
  }
  status.abilities = {std::move(flop), std::move(dram)};
  return status;
}

PassPlan PerfEventSource::prepare(const CountOptions&) {
  const int passes = std::max<int>(1, static_cast<int>(flop_groups_.size()));
  return {passes, fmt::format("{} group{} of core events, a run each; the memory controllers count in the first",
                              flop_groups_.size(), flop_groups_.size() == 1 ? "" : "s")};
}

struct PerfEventSource::Counts {
  Quantity flop;
  Quantity dram_bytes;
  std::map<std::string, double> extra;
};

namespace {

/// The groups that count around one run.
struct Armed {
  std::vector<PerfGroup> core;
  std::vector<std::vector<PerfGroup>> boxes;

  void run(const std::function<void()>& work) const {
    each([](const PerfGroup& group) { group.start(); });
    work();
    each([](const PerfGroup& group) { group.stop(); });
  }
  std::vector<RawGroup> read_core() const { return read_all(core); }
  std::vector<std::vector<RawGroup>> read_boxes() const { return read_memory_groups(boxes); }

 private:
  static std::vector<RawGroup> read_all(const std::vector<PerfGroup>& groups) {
    std::vector<RawGroup> raw;
    for (const PerfGroup& group : groups) raw.push_back(group.read());
    return raw;
  }
  template <class Act>
  void each(const Act& act) const {
    for (const auto& groups : boxes)
      for (const PerfGroup& group : groups) act(group);
    for (const PerfGroup& group : core) act(group);
  }
};

}  // namespace

PerfEventSource::Counts PerfEventSource::count_once(const Workload& workload, const CountOptions& options) const {
  const auto wanted = [&](Metric metric) {
    return std::find(options.metrics.begin(), options.metrics.end(), metric) != options.metrics.end();
  };
  Counts counts{.flop = {.value = 0}, .dram_bytes = {}, .extra = {}};
  std::vector<MemoryEvent> memory;
  if (wanted(Metric::dram_bytes)) memory = memory_events(host_.devices);
  if (memory.empty()) counts.dram_bytes.reason = kNoMemoryPmu;
  if (flop_groups_.empty()) counts.flop = {.reason = "no floating-point events are known for this CPU"};

  const std::size_t passes = wanted(Metric::flop) ? std::max<std::size_t>(1, flop_groups_.size()) : 1;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    if (workload.restore) workload.restore();
    if (workload.flush) workload.flush();
    std::span<const FlopEvent> events;
    if (wanted(Metric::flop) && counts.flop.value) events = flop_groups_[pass];
    Armed armed;
    if (!events.empty())
      if (const int error = open_flop_groups(*system_, events, armed.core)) {
        counts.flop = {.reason = explain_core_failure(host_, error).reason};
        armed.core.clear();
      }
    if (pass == 0)
      if (const int error = open_memory_groups(*system_, memory, armed.boxes)) {
        counts.dram_bytes.reason = explain_memory_failure(host_, error).reason;
        armed.boxes.clear();
      }
    armed.run(workload.run);
    if (!armed.boxes.empty()) counts.dram_bytes = bytes_from_counts(memory, armed.read_boxes());
    if (armed.core.empty()) continue;
    const std::vector<RawGroup> raw = armed.read_core();
    const Quantity part = flop_from_counts(events, raw);
    counts.flop = part.value ? Quantity{.value = *counts.flop.value + *part.value} : part;
    add_extra(events, raw, counts.extra);
  }
  return counts;
}

Reading PerfEventSource::measure(const Workload& workload, const CountOptions& options) {
  if (!workload.run) throw std::invalid_argument("perf_event counts around a call: Workload::run must be callable");
  workload.run();  // creates its threads
  std::map<Metric, std::vector<Quantity>> taken;
  Reading reading{
      .source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = prepare(options)};
  for (int i = 0; i < std::max(1, options.repetitions); ++i) {
    Counts counts = count_once(workload, options);
    taken[Metric::flop].push_back(std::move(counts.flop));
    taken[Metric::dram_bytes].push_back(std::move(counts.dram_bytes));
    reading.extra = std::move(counts.extra);
  }
  for (const Metric metric : options.metrics) {
    const auto found = taken.find(metric);
    reading.quantities[metric] = found != taken.end()
                                     ? combine(found->second)
                                     : Quantity{.reason = std::string("perf_event gives no ") + to_string(metric)};
  }
  if (reading.quantities.count(Metric::flop) == 0) return reading;
  const bool intel = host_.machine.cpu.vendor == "GenuineIntel";
  Quantity& flop = reading.quantities[Metric::flop];
  flop = without_amx(std::move(flop), reading.extra);
  if (intel && workload.dtype == "bf16" && amx_cycles(reading.extra) == 0)
    flop = {.reason = "Intel's bf16 dot products (VDPBF16PS) have no event"};
  return reading;
}

std::vector<KnownWork> PerfEventSource::known_work() const {
  constexpr double kFlopTolerance = 0.01;
  constexpr double kBytesTolerance = 0.05;  // the controllers count the neighbours' traffic too
  return known_work_in_process(describe_machine(), kFlopTolerance, kBytesTolerance);
}

}  // namespace gable::perf
