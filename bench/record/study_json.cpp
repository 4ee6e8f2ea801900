// See study_json.h.
#include "bench/record/study_json.h"

#include <gable/device.h>
#include <gable/version.h>
#include <nlohmann/json.hpp>

#include "bench/common/text.h"
#include "bench/record/program_json.h"
#include "bench/record/row_json.h"
#include "bench/record/schema.h"
#include "bench/record/totals.h"

namespace gable::bench {
namespace {

using nlohmann::json;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

// ---- writing ------------------------------------------------------------------------------------------------------

json versions_json() {
  json versions{{"gable", GABLE_VERSION_STRING}};
  for (const DeviceInfo& info : devices()) {
    if (info.available && !info.library.empty()) versions[info.backend] = info.name;
  }
  return versions;
}

json caches_json(const perf::Machine& machine) {
  json caches = json::object();
  if (machine.caches.l1d.bytes > 0) caches["l1d"] = machine.caches.l1d.bytes;
  if (machine.caches.l2.bytes > 0) caches["l2"] = machine.caches.l2.bytes;
  if (machine.caches.l3.bytes > 0) caches["l3"] = machine.caches.l3.bytes;
  return caches;
}

json instances_json(const perf::Machine& machine) {
  json instances = json::object();
  if (machine.caches.l2.instances > 0) instances["l2"] = machine.caches.l2.instances;
  if (machine.caches.l3.instances > 0) instances["l3"] = machine.caches.l3.instances;
  return instances;
}

void set_limit(json& entry, const perf::MeasuredLimit& limit) {
  entry["value"] = limit.value;
  entry["q1"] = limit.q1;
  entry["q3"] = limit.q3;
  entry["runs"] = limit.runs;
  entry["theoretical"] = or_null(limit.theoretical);
  entry["formula"] = limit.formula;
  if (!limit.note.empty()) entry["note"] = limit.note;
  if (limit.rounds > 1) entry["rounds"] = limit.rounds;
  if (limit.low) entry["low"] = *limit.low;
  if (limit.high) entry["high"] = *limit.high;
  if (!limit.doubt.empty()) entry["doubt"] = limit.doubt;
  if (limit.per_joule) entry["per_joule"] = *limit.per_joule;
}

template <class Entry>
json list_json(const std::vector<Entry>& entries) {
  json list = json::array();
  for (const Entry& entry : entries) list.push_back(to_json(entry));
  return list;
}

json check_json(const perf::CalibrationCheck& check) {
  json entry{{"kernel", check.kernel},       {"quantity", perf::to_string(check.metric)},
             {"expected", check.expected},   {"measured", or_null(check.measured)},
             {"tolerance", check.tolerance}, {"allowance", check.allowance},
             {"passed", check.passed},       {"reason", check.reason}};
  if (check.kept) entry["kept"] = true;
  return entry;
}

json source_json(const CounterSourceEntry& source) {
  const perf::SourceStatus& status = source.status;
  json entry{{"name", status.name},           {"source", perf::to_string(source.provenance)},
             {"available", status.available}, {"reason", status.reason},
             {"cure", status.cure},           {"quantities", json::array()},
             {"calibration", json::array()}};
  for (const perf::Ability& ability : status.abilities) entry["quantities"].push_back(to_json(ability));
  for (const perf::CalibrationCheck& check : source.checks) entry["calibration"].push_back(check_json(check));
  return entry;
}

json counters_json(const CountersEntry& counters) {
  json sources = json::array();
  for (const CounterSourceEntry& source : counters.sources) sources.push_back(source_json(source));
  return {{"mode", counters.mode}, {"sources", std::move(sources)}};
}

json to_json(const EnergyCounterEntry& counter) {
  json entry{{"device", counter.device}, {"device_kind", to_string(counter.device_kind)},
             {"by", counter.by},         {"available", counter.reason.empty()},
             {"note", counter.note},     {"idle_watts", or_null(counter.idle_watts)}};
  if (!counter.reason.empty()) entry["reason"] = counter.reason;
  if (!counter.cure.empty()) entry["cure"] = counter.cure;
  return entry;
}

// ---- reading ------------------------------------------------------------------------------------------------------

using Facts = std::vector<std::pair<std::string, std::string>>;

/// For people: the elements of a list without its punctuation.
std::string plain_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string text;
  for (const json& element : value) text += (text.empty() ? "" : ", ") + plain_text(element);
  return text;
}

/// Numbers with a unit in their name get it behind their value instead.
void flatten(const json& value, const std::string& name, Facts& facts) {
  constexpr std::string_view kHertz = "_hz", kBytes = "_bytes";
  const auto without = [&](std::string_view unit) { return name.substr(0, name.size() - unit.size()); };
  if (value.is_null()) return;
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) flatten(inner, name.empty() ? key : name + " " + key, facts);
  } else if (name.starts_with("caches ") && value.is_number()) {
    facts.emplace_back(name, bytes_text(value.get<double>()));
  } else if (name.ends_with(kBytes) && value.is_number()) {
    facts.emplace_back(without(kBytes), bytes_text(value.get<double>()));
  } else if (name.ends_with(kHertz) && value.is_number()) {
    facts.emplace_back(without(kHertz), si_text(value.get<double>(), "Hz"));
  } else {
    facts.emplace_back(name, plain_text(value));
  }
}

MachineEntry machine_from_json(const json& source) {
  MachineEntry machine{.cpu = source["cpu"],
                       .gpu = text_or_empty(source, "gpu"),
                       .date = source["date"],
                       .cores = source["cores"],
                       .threads = source["threads"],
                       .caches = source["caches"]};
  const json instances = source.value("cache_instances", json::object());  // items() refers to it
  for (const auto& [name, count] : instances.items()) machine.cache_instances[name] = count;
  flatten(source, "", machine.facts);
  return machine;
}

perf::MeasuredLimit limit_from_json(const json& source) {
  return {.value = source["value"],
          .q1 = source["q1"],
          .q3 = source["q3"],
          .runs = source["runs"],
          .theoretical = number_or_empty<double>(source, "theoretical"),
          .formula = text_or_empty(source, "formula"),
          .note = text_or_empty(source, "note"),
          .rounds = number_or_empty<int>(source, "rounds").value_or(1),
          .low = number_or_empty<double>(source, "low"),
          .high = number_or_empty<double>(source, "high"),
          .doubt = text_or_empty(source, "doubt"),
          .per_joule = number_or_empty<double>(source, "per_joule")};
}

CeilingEntry ceiling_from_json(const json& source) {
  return {.device = source["device"],
          .device_kind = device_kind_of(source),
          .name = source["name"],
          .kind = source["kind"],
          .level = text_or_empty(source, "level"),
          .isa = text_or_empty(source, "isa"),
          .dtype = text_or_empty(source, "dtype"),
          .threads = number_or_empty<int>(source, "threads"),
          .working_set_bytes = number_or_empty<double>(source, "working_set_bytes"),
          .level_bytes = number_or_empty<double>(source, "level_bytes"),
          .limit = limit_from_json(source)};
}

RateEntry rate_from_json(const json& source) {
  return {.device = source["device"],
          .device_kind = device_kind_of(source),
          .name = source["name"],
          .unit = source["unit"],
          .limit = limit_from_json(source)};
}

}  // namespace

std::string different_cache(const MachineEntry& a, const MachineEntry& b) {
  for (const auto& [level, bytes] : a.caches) {
    const auto other = b.caches.find(level);
    if (other != b.caches.end() && other->second != bytes) return level;
  }
  return "";
}

json to_json(const CeilingEntry& ceiling) {
  json entry{{"device", ceiling.device}, {"device_kind", to_string(ceiling.device_kind)},
             {"name", ceiling.name},     {"kind", ceiling.kind},
             {"dtype", ceiling.dtype},   {"threads", or_null(ceiling.threads)}};
  entry[ceiling.is_bandwidth() ? "level" : "isa"] = ceiling.is_bandwidth() ? ceiling.level : ceiling.isa;
  if (ceiling.working_set_bytes) entry["working_set_bytes"] = *ceiling.working_set_bytes;
  if (ceiling.level_bytes) entry["level_bytes"] = *ceiling.level_bytes;
  set_limit(entry, ceiling.limit);
  return entry;
}

json to_json(const RateEntry& rate) {
  json entry{
      {"device", rate.device}, {"device_kind", to_string(rate.device_kind)}, {"name", rate.name}, {"unit", rate.unit}};
  set_limit(entry, rate.limit);
  return entry;
}

json to_json(const NetworkTotal& total) {
  return {{"suite", total.suite},
          {"dtype", total.dtype},
          {"math", total.math},
          {"layout", total.layout},
          {"cache", total.cache},
          {"device", total.device},
          {"layers", total.layers},
          {"layers_of_list", total.layers_of_list},
          {"convolutions", total.convolutions},
          {"seconds", total.seconds},
          {"flop", total.flop}};
}

json to_json(const perf::Ability& ability) {
  return {{"quantity", perf::to_string(ability.metric)},
          {"available", ability.available},
          {"reason", ability.reason},
          {"cure", ability.cure}};
}

json to_json(const std::vector<Refusal>& refused) { return list_json(refused); }

json machine_json(const perf::Machine& machine, const std::string& command) {
  json entry{{"cpu", machine.cpu.name},
             {"vendor", machine.cpu.vendor},
             {"architecture", machine.cpu.architecture},
             {"cores", machine.threads.cores},
             {"threads", machine.threads.available},
             {"threads_online", machine.threads.online},
             {"caches", caches_json(machine)},
             {"cache_instances", instances_json(machine)},
             {"simd", machine.cpu.simd},
             {"clock_hz", machine.cpu.clock_hz},
             {"memory_bytes", machine.memory.bytes},
             {"compiler", machine.system.compiler},
             {"os", machine.system.os},
             {"kernel", machine.system.kernel},
             {"date", machine.system.date},
             {"command", command},
             {"versions", versions_json()}};
  if (machine.system.virtual_machine) entry["hypervisor"] = machine.system.hypervisor;
  if (!machine.notes.empty()) entry["notes"] = machine.notes;
  for (const DeviceInfo& info : devices()) {
    if (info.available && info.memory.kind == Memory::Kind::cuda && !entry.contains("gpu")) entry["gpu"] = info.name;
  }
  return entry;
}

json to_json(const Study& study, const RunEntry& run) {
  json document{{"schema_version", kSchemaVersion},
                {"machine", machine_json(run.machine, run.command)},
                {"ceilings", list_json(study.ceilings)},
                {"measurements", list_json(study.rows)},
                {"refused", list_json(study.refused)}};
  if (!run.mode.empty()) document["machine"]["mode"] = run.mode;
  if (json totals = list_json(network_totals(study.rows, study.refused)); !totals.empty()) {
    document["totals"] = std::move(totals);
  }
  if (!study.rates.empty()) document["rates"] = list_json(study.rates);
  if (study.program) document["program"] = to_json(*study.program);
  if (run.counters) document["counters"] = counters_json(*run.counters);
  for (const EnergyCounterEntry& counter : run.energy) document["energy"].push_back(to_json(counter));
  validate_study(document);
  return document;
}

ReadStudy study_from_json(const json& document) {
  validate_study(document);
  ReadStudy read{.machine = machine_from_json(document["machine"]), .study = {}};
  for (const json& entry : document["ceilings"]) read.study.ceilings.push_back(ceiling_from_json(entry));
  for (const json& entry : document.value("rates", json::array())) read.study.rates.push_back(rate_from_json(entry));
  for (const json& entry : document["measurements"]) read.study.rows.push_back(row_from_json(entry));
  for (const json& entry : document["refused"]) read.study.refused.push_back(refusal_from_json(entry));
  if (const auto program = document.find("program"); program != document.end() && !program->is_null()) {
    read.study.program = program_from_json(*program);
  }
  return read;
}

std::string json_text(const json& document) {
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace gable::bench
