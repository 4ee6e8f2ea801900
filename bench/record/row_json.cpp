// See row_json.h.
#include "bench/record/row_json.h"

#include "bench/record/program_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace gable::bench {
namespace {

using nlohmann::json;
using Pair = std::array<std::int64_t, 2>;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

template <class T>
void set_if(json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

void set_if(json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

std::optional<Pair> pair_or_empty(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->size() != 2) return std::nullopt;
  if (!(*found)[0].is_number_integer() || !(*found)[1].is_number_integer()) return std::nullopt;
  return found->get<Pair>();
}

// ---- identity -----------------------------------------------------------------------------------------------------

json epilogue_json(const EpilogueFields& epilogue) {
  json entry{{"bias", epilogue.bias}, {"activation", epilogue.activation}, {"max_pool", or_null(epilogue.max_pool)}};
  set_if(entry, "max_pool_stride", epilogue.max_pool_stride);
  return entry;
}

std::optional<EpilogueFields> epilogue_from_json(const json& measurement) {
  const auto found = measurement.find("epilogue");
  if (found == measurement.end() || !found->is_object()) return std::nullopt;
  return EpilogueFields{.bias = (*found)["bias"],
                        .activation = (*found)["activation"],
                        .max_pool = pair_or_empty(*found, "max_pool"),
                        .max_pool_stride = pair_or_empty(*found, "max_pool_stride")};
}

Identity identity_from_json(const json& m) {
  return {.suite = m["suite"],
          .name = m["name"],
          .op = m["op"],
          .problem = m["problem"],
          .dtype = m["dtype"],
          .math = text_or_empty(m, "math"),
          .layout = text_or_empty(m, "layout"),
          .epilogue = epilogue_from_json(m),
          .tile = pair_or_empty(m, "tile"),
          .working_set_bytes = number_or_empty<double>(m, "working_set_bytes"),
          .count = number_or_empty<std::int64_t>(m, "count")};
}

// ---- placement ----------------------------------------------------------------------------------------------------

void set_placement(json& entry, const Placement& place) {
  entry["device"] = place.device;
  if (!place.asked.empty()) entry["asked"] = place.asked;
  entry["device_kind"] = to_string(place.kind);
  set_if(entry, "gpu_index", place.gpu);
  entry["device_name"] = place.device_name;
  entry["kernel"] = place.kernel;
  entry["threads"] = or_null(place.threads);
  set_if(entry, "used_threads", place.used_threads);
  entry["fused"] = place.fused;
  entry["cache"] = place.cache;
  if (!place.arithmetic.dtype.empty()) {
    entry["arithmetic"] = {{"dtype", place.arithmetic.dtype}, {"products", place.arithmetic.products}};
    if (!place.arithmetic.flop.empty()) entry["arithmetic"]["flop"] = place.arithmetic.flop;
  }
}

ArithmeticFields arithmetic_from_json(const json& m) {
  const auto found = m.find("arithmetic");
  if (found == m.end() || !found->is_object()) return {};
  ArithmeticFields fields{.dtype = text_or_empty(*found, "dtype"),
                          .products = number_or_empty<int>(*found, "products").value_or(1)};
  const json by_type = found->value("flop", json::object());  // items() refers to it
  for (const auto& [dtype, flop] : by_type.items()) {
    if (flop.is_number()) fields.flop[dtype] = flop;
  }
  return fields;
}

Placement placement_from_json(const json& m) {
  return {.device = m["device"],
          .asked = text_or_empty(m, "asked"),
          .kind = device_kind_of(m),
          .gpu = number_or_empty<int>(m, "gpu_index"),
          .device_name = m["device_name"],
          .kernel = m["kernel"],
          .threads = number_or_empty<int>(m, "threads"),
          .used_threads = number_or_empty<int>(m, "used_threads"),
          .fused = m["fused"],
          .cache = m["cache"],
          .arithmetic = arithmetic_from_json(m)};
}

// ---- numbers ------------------------------------------------------------------------------------------------------

json timing_json(const Timing& time) {
  json entry{{"source", time.source}, {"seconds", time.seconds}, {"q1", time.q1}, {"q3", time.q3}, {"runs", time.runs}};
  set_if(entry, "fastest", time.fastest);
  set_if(entry, "calls_per_run", time.calls_per_run);
  for (const TimingRound& round : time.rounds) entry["rounds"].push_back({round.q1, round.seconds, round.q3});
  return entry;
}

std::vector<TimingRound> rounds_from_json(const json& time) {
  std::vector<TimingRound> rounds;
  const auto found = time.find("rounds");
  if (found == time.end() || found->is_null()) return rounds;
  for (const json& one : *found) rounds.push_back({.q1 = one[0], .seconds = one[1], .q3 = one[2]});
  return rounds;
}

Timing timing_from_json(const json& time) {
  return {.source = time["source"],
          .seconds = time["seconds"],
          .q1 = time["q1"],
          .q3 = time["q3"],
          .fastest = number_or_empty<double>(time, "fastest"),
          .runs = time["runs"],
          .calls_per_run = number_or_empty<int>(time, "calls_per_run"),
          .rounds = rounds_from_json(time)};
}

/// `amount` is the name of the value's field: "flop" for W, "bytes" for Q.
json quantity_json(const Quantity& quantity, const char* amount) {
  json entry{{"source", quantity.source}, {amount, quantity.value}, {"analytic", or_null(quantity.analytic)}};
  set_if(entry, "by", quantity.by);
  set_if(entry, "q1", quantity.spread.q1);
  set_if(entry, "q3", quantity.spread.q3);
  set_if(entry, "repetitions", quantity.spread.repetitions);
  set_if(entry, "multiplex", quantity.spread.multiplex);
  set_if(entry, "ratio", quantity.ratio);
  set_if(entry, "note", quantity.note);
  set_if(entry, "reason", quantity.reason);
  for (const auto& [source, bytes] : quantity.resident) entry[source] = bytes;
  return entry;
}

Quantity quantity_from_json(const json& entry, const char* amount) {
  Quantity quantity{.source = entry["source"],
                    .value = entry[amount],
                    .analytic = number_or_empty<double>(entry, "analytic"),
                    .by = text_or_empty(entry, "by"),
                    .spread = {.q1 = number_or_empty<double>(entry, "q1"),
                               .q3 = number_or_empty<double>(entry, "q3"),
                               .repetitions = number_or_empty<int>(entry, "repetitions"),
                               .multiplex = number_or_empty<double>(entry, "multiplex")},
                    .ratio = number_or_empty<double>(entry, "ratio"),
                    .note = text_or_empty(entry, "note"),
                    .reason = text_or_empty(entry, "reason")};
  for (const char* source : {"counter", "simulated"}) {
    if (const auto bytes = number_or_empty<double>(entry, source)) quantity.resident[source] = *bytes;
  }
  return quantity;
}

// ---- verdict, accuracy, counters ----------------------------------------------------------------------------------

void set_verdict(json& entry, const Verdict& verdict) {
  entry["bound"] = text_or_null(verdict.bound);
  entry["percent_of_roof"] = or_null(verdict.percent_of_roof);
  set_if(entry, "roof", verdict.roof);
  for (const RoofLimit& limit : verdict.limits) {
    entry["limits"].push_back(
        {{"bound", limit.bound}, {"roof", limit.roof}, {"value", limit.value}, {"percent", limit.percent}});
  }
  if (!verdict.flags.empty()) entry["flags"] = verdict.flags;
}

std::vector<RoofLimit> limits_from_json(const json& m) {
  std::vector<RoofLimit> limits;
  for (const json& limit : m.value("limits", json::array())) {
    limits.push_back({.bound = text_or_empty(limit, "bound"),
                      .roof = text_or_empty(limit, "roof"),
                      .value = number_or_empty<double>(limit, "value").value_or(0),
                      .percent = number_or_empty<double>(limit, "percent").value_or(0)});
  }
  return limits;
}

Verdict verdict_from_json(const json& m) {
  Verdict verdict{.bound = text_or_empty(m, "bound"),
                  .roof = text_or_empty(m, "roof"),
                  .percent_of_roof = number_or_empty<double>(m, "percent_of_roof"),
                  .limits = limits_from_json(m)};
  const auto flags = m.find("flags");
  if (flags == m.end() || !flags->is_array()) return verdict;
  for (const json& flag : *flags) {
    if (flag.is_string()) verdict.flags.push_back(flag);
  }
  return verdict;
}

void set_accuracy(json& entry, const Accuracy& accuracy) {
  entry["max_error"] = or_null(accuracy.max_error);
  entry["error_bound"] = or_null(accuracy.error_bound);
  set_if(entry, "relative_error", accuracy.relative_error);
}

void set_counters(json& entry, const CounterDetails& counters) {
  if (!counters.extra.empty()) entry["extra"] = counters.extra;
  for (const auto& [source, one] : counters.sources) {
    entry["counting"][source] = {{"passes", one.passes}, {"plan", one.plan}};
  }
}

CounterDetails counters_from_json(const json& m) {
  CounterDetails counters;
  if (const auto extra = m.find("extra"); extra != m.end() && extra->is_object()) {
    for (const auto& [name, value] : extra->items()) {
      if (value.is_number()) counters.extra[name] = value;
    }
  }
  if (const auto sources = m.find("counting"); sources != m.end() && sources->is_object()) {
    for (const auto& [source, one] : sources->items()) {
      if (!one.is_object()) continue;
      counters.sources[source] = {number_or_empty<int>(one, "passes").value_or(1), text_or_empty(one, "plan")};
    }
  }
  return counters;
}

// ---- insight ------------------------------------------------------------------------------------------------------

void set_insight(json& entry, const Row& row) {
  if (row.regime) entry["regime"] = to_json(*row.regime);
  if (row.scaling) {
    entry["scaling"] = {{"work", row.scaling->work}, {"bytes", row.scaling->bytes}, {"time", row.scaling->time}};
    if (!row.scaling->kernel.empty()) entry["scaling"]["kernel"] = row.scaling->kernel;
  }
  if (row.naive) {
    entry["naive"] = {{"model", "convolution"}, {"bytes", row.naive->bytes}};
    set_if(entry["naive"], "seconds", row.naive->seconds);
    if (row.naive->seconds) entry["naive"]["ratio"] = *row.naive->seconds / row.time.seconds;
  }
  if (row.fusion) {
    entry["fusion"] = {{"bytes_saved", row.fusion->bytes_saved}};
    set_if(entry["fusion"], "seconds_saved", row.fusion->seconds_saved);
  }
}

void read_insight(const json& m, Row& row) {
  if (const auto regime = m.find("regime"); regime != m.end()) row.regime = regime_from_json(*regime);
  if (const auto scaling = m.find("scaling"); scaling != m.end() && scaling->is_object()) {
    row.scaling = {.work = number_or_empty<double>(*scaling, "work").value_or(1),
                   .bytes = number_or_empty<double>(*scaling, "bytes").value_or(1),
                   .time = number_or_empty<double>(*scaling, "time").value_or(1),
                   .kernel = text_or_empty(*scaling, "kernel")};
  }
  if (const auto naive = m.find("naive"); naive != m.end() && naive->is_object()) {
    row.naive = {.bytes = number_or_empty<double>(*naive, "bytes").value_or(0),
                 .seconds = number_or_empty<double>(*naive, "seconds")};
  }
  if (const auto fusion = m.find("fusion"); fusion != m.end() && fusion->is_object()) {
    row.fusion = {.bytes_saved = number_or_empty<double>(*fusion, "bytes_saved").value_or(0),
                  .seconds_saved = number_or_empty<double>(*fusion, "seconds_saved")};
  }
}

// ---- instructions -------------------------------------------------------------------------------------------------

json instructions_json(const perf::InstructionCounts& counts) {
  json entry{{"warp", counts.warp},
             {"thread", counts.thread},
             {"thread_active", counts.thread_active},
             {"levels", json::object()}};
  for (const auto& [name, level] : counts.levels)
    entry["levels"][name] = {{"instructions", level.instructions}, {"transactions", level.transactions}};
  return entry;
}

std::optional<perf::InstructionCounts> instructions_from_json(const json& m) {
  const auto found = m.find("instructions");
  if (found == m.end() || !found->is_object()) return std::nullopt;
  const auto number = [](const json& entry, const char* key) {
    return number_or_empty<double>(entry, key).value_or(0);
  };
  perf::InstructionCounts counts{.warp = number(*found, "warp"),
                                 .thread = number(*found, "thread"),
                                 .thread_active = number(*found, "thread_active")};
  const json levels = found->value("levels", json::object());  // items() refers to it
  for (const auto& [name, level] : levels.items())
    counts.levels[name] = {number(level, "instructions"), number(level, "transactions")};
  return counts;
}

// ---- energy -------------------------------------------------------------------------------------------------------

json energy_json(const EnergyFields& energy, double flop) {
  json entry{{"joules", or_null(energy.joules)}};
  set_if(entry, "by", energy.by);
  set_if(entry, "reason", energy.reason);
  if (energy.calls == 0) return entry;
  entry["watts"] = energy.watts;
  entry["seconds"] = energy.seconds;
  entry["calls"] = energy.calls;
  entry["updates"] = energy.updates;
  entry["uncertainty"] = energy.uncertainty;
  if (energy.joules) entry["gflop_per_joule"] = flop / *energy.joules / 1e9;
  return entry;
}

std::optional<EnergyFields> energy_from_json(const json& m) {
  const auto found = m.find("energy");
  if (found == m.end() || !found->is_object()) return std::nullopt;
  return EnergyFields{.joules = number_or_empty<double>(*found, "joules"),
                      .reason = text_or_empty(*found, "reason"),
                      .by = text_or_empty(*found, "by"),
                      .watts = number_or_empty<double>(*found, "watts").value_or(0),
                      .seconds = number_or_empty<double>(*found, "seconds").value_or(0),
                      .calls = number_or_empty<std::int64_t>(*found, "calls").value_or(0),
                      .updates = number_or_empty<int>(*found, "updates").value_or(0),
                      .uncertainty = number_or_empty<double>(*found, "uncertainty").value_or(0)};
}

}  // namespace

json to_json(const Regime& regime) {
  return {{"name", regime.name}, {"evidence", regime.evidence}, {"advice", regime.advice}};
}

std::optional<Regime> regime_from_json(const json& entry) {
  if (!entry.is_object() || text_or_empty(entry, "name").empty()) return std::nullopt;
  Regime regime{.name = text_or_empty(entry, "name"), .evidence = text_or_empty(entry, "evidence"), .advice = {}};
  const auto advice = entry.find("advice");
  if (advice == entry.end() || !advice->is_array()) return regime;
  for (const json& one : *advice) {
    if (one.is_string()) regime.advice.push_back(one);
  }
  return regime;
}

std::string text_or_empty(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

DeviceKind device_kind_of(const json& entry) {
  const std::string kind = text_or_empty(entry, "device_kind");
  if (kind.empty()) return device_kind_of_old_name(text_or_empty(entry, "device"));
  return kind == to_string(DeviceKind::gpu) ? DeviceKind::gpu : DeviceKind::cpu;
}

json to_json(const Identity& identity) {
  json entry{{"suite", identity.suite},
             {"name", identity.name},
             {"op", identity.op},
             {"problem", identity.problem},
             {"dtype", identity.dtype}};
  set_if(entry, "math", identity.math);
  set_if(entry, "layout", identity.layout);
  if (identity.epilogue) entry["epilogue"] = epilogue_json(*identity.epilogue);
  set_if(entry, "tile", identity.tile);
  set_if(entry, "working_set_bytes", identity.working_set_bytes);
  set_if(entry, "count", identity.count);
  return entry;
}

json to_json(const Row& row) {
  json entry = to_json(row.identity);
  set_placement(entry, row.place);
  entry["T"] = timing_json(row.time);
  entry["W"] = quantity_json(row.work, "flop");
  for (const auto& [level, quantity] : row.traffic) entry["Q"][level] = quantity_json(quantity, "bytes");
  entry["intensity"] = row.intensity();
  entry["gflops"] = row.flops() / 1e9;
  set_verdict(entry, row.verdict);
  set_accuracy(entry, row.accuracy);
  set_counters(entry, row.counters);
  set_if(entry, "edges_per_second", row.edges_per_second);
  if (row.called) entry["called"] = to_json(*row.called);
  set_insight(entry, row);
  if (row.instructions) entry["instructions"] = instructions_json(*row.instructions);
  if (row.energy) entry["energy"] = energy_json(*row.energy, row.work.value);
  return entry;
}

Row row_from_json(const json& m) {
  Row row;
  row.identity = identity_from_json(m);
  row.place = placement_from_json(m);
  row.time = timing_from_json(m["T"]);
  row.work = quantity_from_json(m["W"], "flop");
  for (const auto& [level, entry] : m["Q"].items()) row.traffic[level] = quantity_from_json(entry, "bytes");
  row.verdict = verdict_from_json(m);
  row.accuracy = {number_or_empty<double>(m, "max_error"), number_or_empty<double>(m, "error_bound"),
                  number_or_empty<double>(m, "relative_error")};
  row.counters = counters_from_json(m);
  row.edges_per_second = number_or_empty<double>(m, "edges_per_second");
  row.called = called_from_json(m);
  read_insight(m, row);
  row.instructions = instructions_from_json(m);
  row.energy = energy_from_json(m);
  return row;
}

json to_json(const Refusal& refusal) {
  json entry{{"suite", refusal.suite}, {"name", refusal.name},     {"problem", refusal.problem},
             {"dtype", refusal.dtype}, {"device", refusal.device}, {"reason", refusal.reason}};
  set_if(entry, "math", refusal.math);
  for (const KernelRefusal& one : refusal.kernels)
    entry["kernels"].push_back({{"kernel", one.kernel}, {"reason", one.reason}});
  return entry;
}

std::vector<KernelRefusal> kernel_refusals_from_json(const json& refused) {
  std::vector<KernelRefusal> kernels;
  for (const json& one : refused.value("kernels", json::array())) kernels.push_back({one["kernel"], one["reason"]});
  return kernels;
}

Refusal refusal_from_json(const json& refused) {
  return {.suite = refused["suite"],
          .name = refused["name"],
          .problem = refused["problem"],
          .dtype = refused["dtype"],
          .math = text_or_empty(refused, "math"),
          .device = refused["device"],
          .reason = refused["reason"],
          .kernels = kernel_refusals_from_json(refused)};
}

}  // namespace gable::bench
