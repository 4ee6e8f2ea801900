// See perf_system.h.
#include "perfcounters/sources/perf_system.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "perfcounters/machine/files.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "/sys/bus/event_source/devices";

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

int paranoid_level() {
  const auto line = first_line("/proc/sys/kernel/perf_event_paranoid");
  return line ? std::atoi(line->c_str()) : 2;
}

bool has_cpu_pmu(const std::string& devices) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(devices, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "cpu" || name.starts_with("cpu_") || name.starts_with("armv8_") || name.starts_with("armv9_"))
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

}  // namespace

std::string group_refusal(const RawGroup& group, std::size_t expected_values) {
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

SourceStatus explain_failure(int error, int paranoid, bool virtual_machine, bool has_pmu) {
  SourceStatus status{"perf_event", false, kPerfProvides, "", ""};
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

SourceStatus explain_core_failure(const PerfHost& host, int error) {
  return explain_failure(error, host.paranoid, host.machine.system.virtual_machine, has_cpu_pmu(host.devices));
}

SourceStatus explain_memory_failure(const PerfHost& host, int error) {
  return explain_failure(error, host.paranoid, host.machine.system.virtual_machine, true);
}

PerfHost perf_host() { return {describe_isa_only(), kDevices, paranoid_level(), sve_vector_bits()}; }

std::shared_ptr<PerfSystem> linux_perf_system() { return std::make_shared<LinuxPerf>(); }

}  // namespace gable::perf
