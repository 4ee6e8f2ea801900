// See memory_events.h.
#include "perfcounters/sources/memory_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/number.h"
#include "perfcounters/machine.h"
#include "perfcounters/machine/files.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

constexpr double kLineBytes = 64;

MemoryEvent event_of_box(const fs::path& box, const std::string& name, std::uint64_t config) {
  MemoryEvent event{.box = box.filename().string(), .name = name, .config = config, .cpus = {}};
  event.type = static_cast<std::uint32_t>(std::stoul(first_line((box / "type").string()).value_or("0")));
  event.cpus = parse_cpu_list(first_line((box / "cpumask").string()).value_or("0"));
  return event;
}

// sysfs gives the scale in the unit beside it; Intel's boxes say 6.103515625e-5 MiB, which is 64 bytes.
double bytes_per_count(const fs::path& events, const std::string& name) {
  const auto scale = first_line((events / (name + ".scale")).string());
  if (!scale) return kLineBytes;
  const std::string unit = first_line((events / (name + ".unit")).string()).value_or("MiB");
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
      if (name.starts_with(direction) && name.find('.') == std::string::npos) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    if (!names.empty() && names.front() == direction) names.resize(1);
    for (const std::string& name : names) {
      const std::string text = first_line((box / "events" / name).string()).value_or("");
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

}  // namespace

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
    if (name.starts_with("uncore_imc_")) add_intel_box(box, found);
    if (name.starts_with("amd_umc_")) add_amd_box(box, found);
  }
  return found;
}

Quantity bytes_from_counts(std::span<const MemoryEvent> events, std::span<const std::vector<RawGroup>> groups) {
  if (events.empty()) return {.reason = "no memory-controller events"};
  if (groups.size() != events.size())
    return {.reason = fmt::format("{} groups were read for {} events", groups.size(), events.size())};
  double bytes = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    for (const RawGroup& group : groups[i]) {
      if (const std::string reason = group_refusal(group, 1); !reason.empty())
        return {.reason = events[i].box + "/" + events[i].name + ": " + reason};
      bytes += events[i].bytes_per_count * static_cast<double>(group.values[0]);
    }
  }
  return {.value = bytes, .q1 = bytes, .q3 = bytes};
}

}  // namespace gable::perf
