// Reading and merging studies.
#include "bench/report/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "bench/record/schema.h"
#include "bench/record/study_json.h"

namespace gable::bench::report {
namespace {

using nlohmann::json;

// Studies of the same hardware share a tag. A single machine has none.
void assign_tags(std::vector<Machine>& machines) {
  std::vector<std::string> known;
  std::vector<size_t> rank;
  for (const Machine& machine : machines) {
    const std::string identity = fmt::format("{}\n{}\n{}", machine.cpu, machine.gpu, machine.threads);
    auto it = std::find(known.begin(), known.end(), identity);
    rank.push_back(static_cast<size_t>(it - known.begin()));
    if (it == known.end()) known.push_back(identity);
  }
  if (known.size() < 2) return;
  for (size_t i = 0; i < machines.size(); ++i) {
    const size_t letter = rank[i];
    machines[i].tag = letter < 26 ? std::string(1, static_cast<char>('A' + letter)) : std::to_string(letter + 1);
  }
}

std::string math_of(const Measurement& m) { return m.identity.math.empty() ? "strict" : m.identity.math; }

// A device's name, with its math if not all rows are strict, and with the machine's tag if two machines have that
// device. Machines may have different devices.
void name_series(Studies& studies) {
  std::map<std::string, std::set<std::string>> tags_of_device, maths_of_device;
  for (const Measurement& m : studies.measurements) {
    tags_of_device[m.place.device].insert(studies.machines[m.machine].tag);
    maths_of_device[m.place.device].insert(math_of(m));
  }
  for (Measurement& m : studies.measurements) {
    m.series = m.place.device;
    if (maths_of_device[m.place.device] != std::set<std::string>{"strict"}) m.series += " " + math_of(m);
    if (tags_of_device[m.place.device].size() > 1) m.series += " · " + studies.machines[m.machine].tag;
  }
}

void name_labels(Studies& studies) {
  std::map<std::string, std::set<std::string>> pools_of_name;
  for (const Measurement& m : studies.measurements) pools_of_name[m.identity.name].insert(max_pool_of(m));
  for (Measurement& m : studies.measurements) {
    const std::string& name = m.identity.name;
    const bool ambiguous = pools_of_name[name].size() > 1 && !max_pool_of(m).empty();
    m.label = ambiguous ? name + "+pool" : name;
  }
}

/// The units of f64 and i8 are drawn where a row of the panel computes in that type, or where there are no rows: among
/// the roofs of f32 and 16-bit types they would only be clutter.
bool is_of_interest(const Studies& studies, const Ceiling& ceiling) {
  if (ceiling.is_bandwidth() || (ceiling.dtype != "f64" && ceiling.dtype != "i8")) return true;
  bool none = true;
  for (const Measurement& m : studies.measurements) {
    if (m.place.kind != ceiling.device_kind) continue;
    if (m.identity.dtype == ceiling.dtype || m.place.arithmetic.dtype == ceiling.dtype) return true;
    none = false;
  }
  return none;
}

int threads_of_roof(const Studies& studies, DeviceKind kind, const std::string& tag) {
  int used = 0, most = 0;
  for (const Measurement& m : studies.measurements) {
    if (m.place.kind != kind || studies.machines[m.machine].tag != tag) continue;
    used = std::max(used, m.place.threads.value_or(0));
  }
  bool measured = false;
  for (const Ceiling& c : studies.ceilings) {
    if (c.device_kind != kind || studies.machines[c.machine].tag != tag) continue;
    most = std::max(most, c.threads.value_or(0));
    measured = measured || c.threads.value_or(0) == used;
  }
  return measured ? used : most;
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
  name_series(merged);
  name_labels(merged);
  return merged;
}

std::vector<const Ceiling*> roof_of(const Studies& studies, DeviceKind kind) {
  std::vector<std::string> tags;
  for (const Machine& machine : studies.machines) {
    if (std::find(tags.begin(), tags.end(), machine.tag) == tags.end()) tags.push_back(machine.tag);
  }
  std::vector<const Ceiling*> roof;
  for (const std::string& tag : tags) {
    const int threads = threads_of_roof(studies, kind, tag);
    std::map<std::string, const Ceiling*> best;  // keys: ISA and dtype of compute, level of bandwidth
    for (const Ceiling& c : studies.ceilings) {
      if (c.device_kind != kind || studies.machines[c.machine].tag != tag) continue;
      if (c.threads.value_or(threads) != threads || !is_of_interest(studies, c)) continue;
      const Ceiling*& slot = best[c.is_bandwidth() ? c.level : c.isa + "\n" + c.dtype];
      if (!slot || c.limit.value > slot->limit.value) slot = &c;
    }
    const size_t first = roof.size();
    for (const auto& [key, ceiling] : best) roof.push_back(ceiling);
    std::sort(roof.begin() + static_cast<std::ptrdiff_t>(first), roof.end(),
              [](const Ceiling* a, const Ceiling* b) { return a->limit.value > b->limit.value; });
  }
  return roof;
}

}  // namespace gable::bench::report
