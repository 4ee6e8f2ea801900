// Reading and merging studies.
#include "bench/report/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "bench/report/schema.h"
#include "bench/report/text.h"

namespace gable::bench::report {
namespace {

using nlohmann::json;

std::string text_or_empty(const json& object, const char* key) {
  auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

template <class T>
std::optional<T> optional_number(const json& object, const char* key) {
  auto it = object.find(key);
  if (it == object.end() || !it->is_number()) return std::nullopt;
  return it->get<T>();
}

void flatten(const json& value, const std::string& name, std::vector<std::pair<std::string, std::string>>& facts) {
  if (value.is_null()) return;
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) flatten(inner, name.empty() ? key : name + " " + key, facts);
  } else if (name.starts_with("caches ") && value.is_number()) {
    facts.emplace_back(name, bytes_text(value.get<double>()));
  } else {
    facts.emplace_back(name, value.is_string() ? value.get<std::string>()
                                               : value.dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

Machine read_machine(const json& source) {
  Machine machine;
  machine.cpu = source["cpu"];
  machine.gpu = text_or_empty(source, "gpu");
  machine.date = source["date"];
  machine.threads = source["threads"];
  flatten(source, "", machine.facts);
  return machine;
}

Ceiling read_ceiling(const json& source, size_t machine) {
  Ceiling ceiling;
  ceiling.machine = machine;
  ceiling.device = source["device"];
  ceiling.name = source["name"];
  ceiling.kind = source["kind"];
  ceiling.level = text_or_empty(source, "level");
  ceiling.isa = text_or_empty(source, "isa");
  ceiling.dtype = text_or_empty(source, "dtype");
  ceiling.formula = text_or_empty(source, "formula");
  ceiling.threads = optional_number<int>(source, "threads");
  ceiling.value = source["value"];
  ceiling.q1 = source["q1"];
  ceiling.q3 = source["q3"];
  ceiling.runs = source["runs"];
  ceiling.theoretical = optional_number<double>(source, "theoretical");
  return ceiling;
}

Rate read_rate(const json& source, size_t machine) {
  Rate rate;
  rate.machine = machine;
  rate.device = source["device"];
  rate.name = source["name"];
  rate.unit = source["unit"];
  rate.formula = text_or_empty(source, "formula");
  rate.value = source["value"];
  rate.q1 = source["q1"];
  rate.q3 = source["q3"];
  rate.theoretical = optional_number<double>(source, "theoretical");
  return rate;
}

void read_epilogue(const json& source, Measurement& m) {
  auto epilogue = source.find("epilogue");
  if (epilogue == source.end() || !epilogue->is_object()) return;
  m.bias = (*epilogue)["bias"];
  m.activation = (*epilogue)["activation"];
  auto pool = epilogue->find("max_pool");
  if (pool != epilogue->end() && pool->is_array()) {
    m.max_pool = fmt::format("{}x{}", (*pool)[0].get<int>(), (*pool)[1].get<int>());
  }
}

Traffic read_traffic(const json& source) {
  return {source["source"], source["bytes"], optional_number<double>(source, "analytic"),
          optional_number<double>(source, "q1"), optional_number<double>(source, "q3")};
}

Measurement read_measurement(const json& source, size_t machine) {
  Measurement m;
  m.machine = machine;
  m.suite = source["suite"];
  m.name = source["name"];
  m.op = source["op"];
  m.problem = source["problem"];
  m.dtype = source["dtype"];
  m.layout = text_or_empty(source, "layout");
  m.math = text_or_empty(source, "math");
  m.device = source["device"];
  m.device_name = source["device_name"];
  m.kernel = source["kernel"];
  m.cache = source["cache"];
  m.bound = text_or_empty(source, "bound");
  m.fused = source["fused"];
  m.threads = optional_number<int>(source, "threads");
  read_epilogue(source, m);
  if (auto tile = source.find("tile"); tile != source.end() && tile->is_array()) {
    m.tile = fmt::format("{}x{}", (*tile)[0].get<std::int64_t>(), (*tile)[1].get<std::int64_t>());
  }
  const json& time = source["T"];
  m.time = {time["source"], time["seconds"], time["q1"], time["q3"], time["runs"]};
  const json& work = source["W"];
  m.work = {work["source"], work["flop"], work["analytic"]};
  for (const auto& [level, part] : source["Q"].items()) m.traffic[level] = read_traffic(part);
  m.percent_of_roof = optional_number<double>(source, "percent_of_roof");
  m.max_error = optional_number<double>(source, "max_error");
  m.error_bound = optional_number<double>(source, "error_bound");
  m.working_set_bytes = optional_number<double>(source, "working_set_bytes");
  return m;
}

// Studies of the same hardware share a tag; one machine alone needs none.
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

std::string math_of(const Measurement& m) { return m.math.empty() ? "strict" : m.math; }

// A device's name, with its math where that is not always strict, and with the machine's tag where two machines have
// that device: machines differ in what they are used for.
void name_series(Studies& studies) {
  std::map<std::string, std::set<std::string>> tags_of_device, maths_of_device;
  for (const Measurement& m : studies.measurements) {
    tags_of_device[m.device].insert(studies.machines[m.machine].tag);
    maths_of_device[m.device].insert(math_of(m));
  }
  for (Measurement& m : studies.measurements) {
    m.series = m.device;
    if (maths_of_device[m.device] != std::set<std::string>{"strict"}) m.series += " " + math_of(m);
    if (tags_of_device[m.device].size() > 1) m.series += " · " + studies.machines[m.machine].tag;
  }
}

void name_labels(Studies& studies) {
  std::map<std::string, std::set<std::string>> pools_of_name;
  for (const Measurement& m : studies.measurements) pools_of_name[m.name].insert(m.max_pool);
  for (Measurement& m : studies.measurements) {
    const bool ambiguous = pools_of_name[m.name].size() > 1 && !m.max_pool.empty();
    m.label = ambiguous ? m.name + "+pool" : m.name;
  }
}

int threads_of_roof(const Studies& studies, bool gpu, const std::string& tag) {
  int used = 0, most = 0;
  for (const Measurement& m : studies.measurements) {
    if (is_gpu(m.device) == gpu && studies.machines[m.machine].tag == tag) used = std::max(used, m.threads.value_or(0));
  }
  bool measured = false;
  for (const Ceiling& c : studies.ceilings) {
    if (is_gpu(c.device) != gpu || studies.machines[c.machine].tag != tag) continue;
    most = std::max(most, c.threads.value_or(0));
    measured = measured || c.threads.value_or(0) == used;
  }
  return measured ? used : most;
}

}  // namespace

bool is_gpu(const std::string& device) {
  return device.starts_with("cuda") || device.starts_with("cudnn") || device.starts_with("pytorch");
}

Studies merge(const std::vector<json>& studies) {
  Studies merged;
  for (size_t i = 0; i < studies.size(); ++i) {
    try {
      validate_study(studies[i]);
    } catch (const SchemaError& error) {
      if (studies.size() == 1) throw;
      std::vector<Violation> violations = error.violations();
      for (Violation& v : violations) v.pointer = fmt::format("study {} of {}: {}", i + 1, studies.size(), v.pointer);
      throw SchemaError(std::move(violations));
    }
    merged.machines.push_back(read_machine(studies[i]["machine"]));
    for (const json& entry : studies[i]["ceilings"]) merged.ceilings.push_back(read_ceiling(entry, i));
    for (const json& entry : studies[i]["measurements"]) merged.measurements.push_back(read_measurement(entry, i));
    for (const json& entry : studies[i].value("rates", json::array())) merged.rates.push_back(read_rate(entry, i));
    for (const json& entry : studies[i]["refused"]) {
      merged.refused.push_back(
          {i, entry["suite"], entry["name"], entry["problem"], entry["dtype"], entry["device"], entry["reason"]});
    }
  }
  assign_tags(merged.machines);
  name_series(merged);
  name_labels(merged);
  return merged;
}

std::vector<const Ceiling*> roof_of(const Studies& studies, bool gpu) {
  std::vector<std::string> tags;
  for (const Machine& machine : studies.machines) {
    if (std::find(tags.begin(), tags.end(), machine.tag) == tags.end()) tags.push_back(machine.tag);
  }
  std::vector<const Ceiling*> roof;
  for (const std::string& tag : tags) {
    const int threads = threads_of_roof(studies, gpu, tag);
    std::map<std::string, const Ceiling*> best;  // compute by ISA and dtype, bandwidth by level
    for (const Ceiling& c : studies.ceilings) {
      if (is_gpu(c.device) != gpu || studies.machines[c.machine].tag != tag) continue;
      if (c.threads.value_or(threads) != threads) continue;
      const Ceiling*& slot = best[c.is_bandwidth() ? c.level : c.isa + "\n" + c.dtype];
      if (!slot || c.value > slot->value) slot = &c;
    }
    const size_t first = roof.size();
    for (const auto& [key, ceiling] : best) roof.push_back(ceiling);
    std::sort(roof.begin() + static_cast<std::ptrdiff_t>(first), roof.end(),
              [](const Ceiling* a, const Ceiling* b) { return a->value > b->value; });
  }
  return roof;
}

}  // namespace gable::bench::report
