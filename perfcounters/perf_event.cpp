// Event tables, arithmetic, sysfs parsing and system calls behind perf_event.h, in this order.
#include "perfcounters/perf_event.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
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

#include "perfcounters/machine.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "/sys/bus/event_source/devices";
constexpr double kLineBytes = 64;

Quantity refused(std::string reason) { return {.reason = std::move(reason)}; }

// Empty when the group's values can be believed.
std::string refusal(const RawGroup& group, std::size_t expected_values) {
  if (group.time_running == 0) return "the counters never ran: the PMU is in use by another program";
  if (group.time_running != group.time_enabled)
    return fmt::format(
        "the counters ran {} of {} ns: they were shared (multiplexed), and extrapolated counts are no counts",
        group.time_running, group.time_enabled);
  if (group.values.size() != expected_values)
    return fmt::format("{} values were read for {} events", group.values.size(), expected_values);
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
  return std::stod(*scale) * (unit == "MiB" ? 1048576.0 : 1.0);
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

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }

 private:
  int number_;
};

FileDescriptor open_event(std::uint32_t type, std::uint64_t config, pid_t thread, int cpu, int leader) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = type;
  attributes.config = config;
  if (leader < 0) attributes.disabled = 1;
  attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  if (cpu < 0) {  // a thread's own event; a memory controller cannot tell user from kernel
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
  }
  return FileDescriptor(
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, thread, cpu, leader, PERF_FLAG_FD_CLOEXEC)));
}

// Events that are scheduled together or not at all.
class Group {
 public:
  // Returns errno of the first event that could not be opened; 0 when all were.
  int add(std::uint32_t type, std::uint64_t config, pid_t thread, int cpu) {
    FileDescriptor opened = open_event(type, config, thread, cpu, members_.empty() ? -1 : members_.front().get());
    if (!opened.valid()) return errno;
    members_.push_back(std::move(opened));
    return 0;
  }
  void start() const {
    ioctl(members_.front().get(), PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
    ioctl(members_.front().get(), PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
  }
  void stop() const { ioctl(members_.front().get(), PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP); }
  RawGroup read() const {
    std::vector<std::uint64_t> words(3 + members_.size());  // number, enabled, running, values
    const ssize_t got = ::read(members_.front().get(), words.data(), words.size() * sizeof(words[0]));
    if (got < static_cast<ssize_t>(3 * sizeof(words[0]))) return {};
    words.resize(static_cast<std::size_t>(got) / sizeof(words[0]));
    return {words[1], words[2], {words.begin() + 3, words.end()}};
  }

 private:
  std::vector<FileDescriptor> members_;
};

int open_flop_group(std::span<const FlopEvent> events, pid_t thread, Group& group) {
  for (const FlopEvent& event : events)
    if (const int error = group.add(PERF_TYPE_RAW, event.config, thread, -1)) return error;
  return 0;
}

std::vector<pid_t> own_threads() {
  std::vector<pid_t> threads;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc/self/task", ignored))
    threads.push_back(static_cast<pid_t>(std::stoi(entry.path().filename().string())));
  return threads;
}

int paranoid_level() {
  const auto line = first_line("/proc/sys/kernel/perf_event_paranoid");
  return line ? std::atoi(line->c_str()) : 2;
}

bool has_cpu_pmu() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kDevices, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "cpu" || starts_with(name, "cpu_") || starts_with(name, "armv8_")) return true;
  }
  return false;
}

struct SystemFacts {
  std::string vendor;
  bool virtual_machine = false;
};

SystemFacts system_facts() {
  const Machine machine = describe_isa_only();
  return {machine.vendor, machine.virtual_machine};
}

std::string failure_text(int error) {
  const SystemFacts facts = system_facts();
  return explain_failure(error, paranoid_level(), facts.virtual_machine, has_cpu_pmu()).reason;
}

// errno of opening every memory event once; 0 when all opened.
int open_memory_groups(std::span<const MemoryEvent> events, std::vector<std::vector<Group>>& groups) {
  for (const MemoryEvent& event : events) {
    groups.emplace_back();
    for (const int cpu : event.cpus) {
      Group group;
      if (const int error = group.add(event.type, event.config, -1, cpu)) return error;
      groups.back().push_back(std::move(group));
    }
  }
  return 0;
}

}  // namespace

std::vector<FlopEvent> flop_events(const std::string& vendor) {
  // Merged umasks: each sums forms of equal weight, so that five counters see all of f32 and f64.
  if (vendor == "GenuineIntel")
    return {{"fp_arith_inst_retired.scalar", 0x03C7, 1},
            {"fp_arith_inst_retired.128b_packed_double", 0x04C7, 2},
            {"fp_arith_inst_retired.4_flops", 0x18C7, 4},
            {"fp_arith_inst_retired.8_flops", 0x60C7, 8},
            {"fp_arith_inst_retired.512b_packed_single", 0x80C7, 16}};
  if (vendor == "AuthenticAMD") return {{"fp_ret_sse_avx_ops.all", 0x1F03, 1}};
  return {};
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
    // A thread that slept all the while was never scheduled, and neither were its counters.
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
  SourceStatus status{"perf_event", false, "W of f32 and f64 arithmetic, Q(dram) of the whole socket", "", ""};
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

SourceStatus perf_event_status() {
  const SystemFacts facts = system_facts();
  const std::vector<FlopEvent> events = flop_events(facts.vendor);
  if (events.empty())
    return {"perf_event", false, "W of f32 and f64 arithmetic, Q(dram) of the whole socket",
            fmt::format("no floating-point events are known for the CPU vendor \"{}\"", facts.vendor),
            "an Intel or AMD CPU; or rely on analytic W and Q"};
  Group group;
  if (const int error = open_flop_group(events, 0, group))
    return explain_failure(error, paranoid_level(), facts.virtual_machine, has_cpu_pmu());

  SourceStatus status{"perf_event", true, "W of f32 and f64 arithmetic", "", ""};
  const std::vector<MemoryEvent> memory = memory_events(kDevices);
  std::vector<std::vector<Group>> groups;
  if (memory.empty()) {
    status.reason = "no Q(dram): the kernel lists no memory-controller PMU (uncore_imc_*, amd_umc_*)";
    status.cure =
        "a server CPU on bare metal with the uncore driver (modprobe intel_uncore; amd_uncore since Linux 6.8)";
  } else if (const int error = open_memory_groups(memory, groups)) {
    const SourceStatus failure = explain_failure(error, paranoid_level(), facts.virtual_machine, true);
    status.reason = "no Q(dram): " + failure.reason;
    status.cure = failure.cure;
  } else {
    status.provides += ", Q(dram) of the whole socket";
  }
  return status;
}

namespace {

/// What one run counted.
struct Counts {
  Quantity flop;
  Quantity dram_bytes;
};

Counts count_once(const std::function<void()>& work) {
  Counts reading;
  const std::vector<FlopEvent> events = flop_events(system_facts().vendor);
  std::vector<Group> flop_groups;
  if (events.empty()) reading.flop.reason = perf_event_status().reason;
  for (const pid_t thread : own_threads()) {
    if (!reading.flop.reason.empty()) break;
    Group group;
    const int error = open_flop_group(events, thread, group);
    if (error == ESRCH) continue;  // the thread has ended since it was listed
    if (error != 0)
      reading.flop.reason = failure_text(error);
    else
      flop_groups.push_back(std::move(group));
  }
  if (!reading.flop.reason.empty()) flop_groups.clear();

  const std::vector<MemoryEvent> memory = memory_events(kDevices);
  std::vector<std::vector<Group>> memory_groups;
  if (memory.empty()) {
    reading.dram_bytes.reason = "the kernel lists no memory-controller PMU (uncore_imc_*, amd_umc_*)";
  } else if (const int error = open_memory_groups(memory, memory_groups)) {
    reading.dram_bytes.reason = failure_text(error);
    memory_groups.clear();
  }

  const auto each_group = [&](const auto& act) {
    for (auto& groups : memory_groups)
      for (auto& group : groups) act(group);
    for (auto& group : flop_groups) act(group);
  };
  each_group([](const Group& group) { group.start(); });
  work();
  each_group([](const Group& group) { group.stop(); });

  if (reading.flop.reason.empty()) {
    std::vector<RawGroup> raw;
    for (const Group& group : flop_groups) raw.push_back(group.read());
    reading.flop = flop_from_counts(events, raw);
  }
  if (reading.dram_bytes.reason.empty()) {
    std::vector<std::vector<RawGroup>> raw(memory.size());
    for (std::size_t i = 0; i < memory.size(); ++i)
      for (const Group& group : memory_groups[i]) raw[i].push_back(group.read());
    reading.dram_bytes = bytes_from_counts(memory, raw);
  }
  return reading;
}

}  // namespace

Reading PerfEventSource::measure(const Workload& workload, const CountOptions& options) {
  if (!workload.run) throw std::invalid_argument("perf_event counts around a call: Workload::run must be callable");
  std::map<Metric, std::vector<Quantity>> taken;
  for (int i = 0; i < std::max(1, options.repetitions); ++i) {
    if (i > 0 && workload.restore) workload.restore();
    if (workload.flush) workload.flush();
    const Counts counts = count_once(workload.run);
    taken[Metric::flop].push_back(counts.flop);
    taken[Metric::dram_bytes].push_back(counts.dram_bytes);
  }
  Reading reading{
      .source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = prepare(options)};
  for (const Metric metric : options.metrics) {
    const auto found = taken.find(metric);
    reading.quantities[metric] = found != taken.end()
                                     ? combine(found->second)
                                     : Quantity{.reason = std::string("perf_event gives no ") + to_string(metric)};
  }
  return reading;
}

}  // namespace gable::perf
