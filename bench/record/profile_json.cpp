// See profile_json.h.
#include "bench/record/profile_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/record/study_json.h"

namespace gable::bench {
namespace {

using nlohmann::json;
using perf::Activity;

json rows_json(const std::vector<ProfileRow>& rows) {
  json all = json::array();
  for (const ProfileRow& row : rows) {
    all.push_back({{"device", row.device},
                   {"group", row.group},
                   {"name", row.name},
                   {"percent", row.percent},
                   {"total", row.total},
                   {"calls", row.calls},
                   {"avg", row.average},
                   {"min", row.least},
                   {"median", row.median},
                   {"max", row.greatest},
                   {"slow_percent", row.slow_percent}});
  }
  return all;
}

json hottest_json(const std::vector<ProfileRow>& rows) {
  json all = json::array();
  for (const ProfileRow& row : rows) {
    all.push_back({{"device", row.device}, {"group", row.group}, {"name", row.name}, {"percent", row.percent}});
  }
  return all;
}

json stalls_json(const std::vector<KernelStalls>& stalls) {
  json all = json::array();
  for (const KernelStalls& s : stalls) {
    all.push_back({{"device", s.device},
                   {"case", s.case_name},
                   {"kernel", s.kernel},
                   {"cycles_per_instruction", s.latency},
                   {"reasons", s.reasons}});
  }
  return all;
}

json details_json(const Activity& activity) {
  if (activity.kind == Activity::Kind::kernel) {
    return {{"kernel", activity.name},
            {"grid", activity.grid},
            {"block", activity.block},
            {"registers", activity.registers},
            {"shared_bytes", activity.shared_bytes},
            {"correlation", activity.correlation}};
  }
  if (activity.bytes > 0) return {{"bytes", activity.bytes}, {"correlation", activity.correlation}};
  return {{"correlation", activity.correlation}};
}

json metadata(const char* name, int process, unsigned thread, const std::string& value) {
  return {{"name", name}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", value}}}};
}

}  // namespace

json to_json(const ProfileDocument& profile) {
  return {{"schema_version", 1},
          {"machine", machine_json(profile.machine, profile.command)},
          {"runs", profile.runs},
          {"profile", rows_json(profile.rows)},
          {"hottest", hottest_json(profile.hottest)},
          {"stalls", stalls_json(profile.stalls)},
          {"refused", to_json(profile.refused)}};
}

json chrome_trace(const std::vector<Span>& spans) {
  json events = json::array();
  std::map<std::pair<std::string, std::string>, int> processes;
  std::set<std::pair<int, unsigned>> threads;
  double first = 0;
  for (const Span& span : spans) first = &span == spans.data() ? span.start : std::min(first, span.start);
  for (const Span& span : spans) {
    const auto [process, is_new] =
        processes.try_emplace({span.device, span.group}, static_cast<int>(processes.size()) + 1);
    if (is_new) events.push_back(metadata("process_name", process->second, 0, span.device + ": " + span.group));
    if (threads.insert({process->second, span.lane}).second) {
      const char* what = span.group == kGpuActivities ? "stream" : "thread";
      events.push_back(metadata("thread_name", process->second, span.lane, fmt::format("{} {}", what, span.lane)));
    }
    json details = span.activity ? details_json(*span.activity) : json::object();
    details["case"] = span.case_name;
    events.push_back({{"name", span.name},
                      {"cat", span.group},
                      {"ph", "X"},
                      {"ts", (span.start - first) * 1e6},
                      {"dur", span.seconds * 1e6},
                      {"pid", process->second},
                      {"tid", span.lane},
                      {"args", std::move(details)}});
  }
  return {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
}

}  // namespace gable::bench
