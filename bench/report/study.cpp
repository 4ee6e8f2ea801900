// Reading and merging studies.
#include "bench/report/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/common/text.h"
#include "bench/record/schema.h"
#include "bench/record/study_json.h"

namespace gable::bench::report {
namespace {

using nlohmann::json;

std::string level_suffix(const Row& row) {
  const std::string_view level = row.level();
  return level == "dram" ? "" : fmt::format(" ({})", level_text(level));
}

std::string fact(const Machine& machine, const char* name) {
  for (const auto& [key, value] : machine.facts) {
    if (key == name) return value;
  }
  return "";
}

// What tells machines apart besides their caches. A study that ran on some of a machine's CPUs has fewer `threads` than
// the machine.
std::string hardware_of(const Machine& machine) {
  const std::string online = fact(machine, "threads_online");
  return fmt::format("{}\n{}\n{}", machine.cpu, machine.gpu, online.empty() ? std::to_string(machine.threads) : online);
}

// The cache that tells a machine from others whose CPUs have the same name.
void tell_apart(std::vector<Machine>& machines) {
  for (Machine& machine : machines) {
    for (const Machine& other : machines) {
      const std::string level = other.cpu == machine.cpu ? different_cache(machine, other) : "";
      if (level.empty()) continue;
      machine.apart = fmt::format("L{} {}", level.substr(1), bytes_text(machine.caches.at(level)));
      break;
    }
  }
}

// Studies of the same hardware share a tag. A single machine has none.
void assign_tags(std::vector<Machine>& machines) {
  std::vector<const Machine*> known;
  std::vector<size_t> rank;
  for (const Machine& machine : machines) {
    auto it = std::find_if(known.begin(), known.end(), [&](const Machine* one) {
      return hardware_of(*one) == hardware_of(machine) && different_cache(*one, machine).empty();
    });
    rank.push_back(static_cast<size_t>(it - known.begin()));
    if (it == known.end()) known.push_back(&machine);
  }
  if (known.size() < 2) return;
  for (size_t i = 0; i < machines.size(); ++i) {
    const size_t letter = rank[i];
    machines[i].tag = letter < 26 ? std::string(1, static_cast<char>('A' + letter)) : std::to_string(letter + 1);
  }
}

std::string math_of(const Measurement& m) { return m.identity.math.empty() ? "strict" : m.identity.math; }

// A device's name, with "(auto)" where `auto` chose it beside rows that name it, with its math if not all rows are
// strict, and with the machine's tag if two machines have that device. Machines may have different devices.
void name_series(Studies& studies) {
  std::map<std::string, std::set<std::string>> tags_of_device, maths_of_device;
  std::set<std::string> named;
  for (const Measurement& m : studies.measurements) {
    if (m.place.asked.empty()) named.insert(m.place.device);
    tags_of_device[m.place.device].insert(studies.machines[m.machine].tag);
    maths_of_device[m.place.device].insert(math_of(m));
  }
  for (Measurement& m : studies.measurements) {
    m.series = m.place.device;
    if (!m.place.asked.empty() && named.contains(m.place.device)) m.series += kByAuto;
    if (maths_of_device[m.place.device] != std::set<std::string>{"strict"}) m.series += " " + math_of(m);
    if (tags_of_device[m.place.device].size() > 1) m.series += " · " + studies.machines[m.machine].tag;
  }
}

// " (mb4)" of a row whose batch --quick may have made smaller than that of its name; else empty.
std::string quick_batch(const Measurement& m, const Machine& machine) {
  if (!fact(machine, "mode").starts_with("quick")) return "";
  const std::string& problem = m.identity.problem;
  const size_t batch = problem.find("mb");
  if (batch == std::string::npos) return "";
  const size_t end = problem.find_first_not_of("0123456789", batch + 2);
  const std::string number = problem.substr(batch + 2, end - batch - 2);
  const std::string name = m.identity.name.substr(0, m.identity.name.find("+pool"));
  const bool is_in_name = name.ends_with("_b" + number);
  return number.empty() || is_in_name ? "" : " (mb" + number + ")";
}

void name_labels(Studies& studies) {
  std::map<std::string, std::set<std::string>> pools_of_name;
  for (const Measurement& m : studies.measurements) pools_of_name[m.identity.name].insert(max_pool_of(m));
  for (Measurement& m : studies.measurements) {
    const std::string& name = m.identity.name;
    const bool ambiguous = pools_of_name[name].size() > 1 && !max_pool_of(m).empty();
    m.label = (ambiguous ? name + "+pool" : name) + quick_batch(m, studies.machines[m.machine]) + level_suffix(m);
  }
}

ReadStudy read_one(const std::vector<json>& studies, size_t i) {
  try {
    return study_from_json(studies[i]);
  } catch (const SchemaError& error) {
    if (studies.size() == 1) throw;
    std::vector<Violation> violations = error.violations();
    for (Violation& v : violations) v.pointer = fmt::format("study {} of {}: {}", i + 1, studies.size(), v.pointer);
    throw SchemaError(std::move(violations));
  }
}

}  // namespace

std::string pair_text(const std::optional<std::array<std::int64_t, 2>>& pair) {
  return pair ? fmt::format("{}x{}", (*pair)[0], (*pair)[1]) : "";
}

bool is_vendor_library(const std::string& series) {
  return series.starts_with("onednn") || series.starts_with("cudnn") || series.starts_with("pytorch");
}

std::string precision_of(const Row& row) {
  const std::string& math = row.identity.math;
  return math == "tf32" || math == "split3" || math == "split6" ? math : row.identity.dtype;
}

std::string intensity_text(const Row& row) { return number_text(row.intensity()) + level_suffix(row); }

const std::string& source_of(const Row& row) { return row.farthest().source; }

std::string max_pool_of(const Row& row) {
  return row.identity.epilogue ? pair_text(row.identity.epilogue->max_pool) : "";
}

Studies merge(const std::vector<json>& studies) {
  Studies merged;
  for (size_t i = 0; i < studies.size(); ++i) {
    ReadStudy read = read_one(studies, i);
    merged.machines.push_back({std::move(read.machine)});
    for (CeilingEntry& one : read.study.ceilings) merged.ceilings.push_back({std::move(one), i});
    for (RateEntry& one : read.study.rates) merged.rates.push_back({std::move(one), i});
    for (Row& one : read.study.rows) merged.measurements.push_back({std::move(one), i});
    if (read.study.program) merged.programs.push_back({std::move(*read.study.program), i});
    for (Refusal& one : read.study.refused) merged.refused.push_back({std::move(one), i});
  }
  assign_tags(merged.machines);
  tell_apart(merged.machines);
  name_series(merged);
  name_labels(merged);
  return merged;
}

}  // namespace gable::bench::report
