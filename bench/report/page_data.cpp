// See page_data.h.
#include "bench/report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/common/text.h"
#include "bench/record/headroom.h"
#include "bench/report/figure.h"
#include "bench/report/roofs.h"
#include "bench/report/shapes.h"

namespace gable::bench::report {
namespace {

using nlohmann::json;

// "3.70 GFLOP (counter), 1.02× analytic"; an analytic value needs no comparison with itself.
std::string sourced(const std::string& text, const std::string& source, double value, std::optional<double> analytic) {
  const bool compares = source != "analytic" && analytic && *analytic > 0;
  return fmt::format("{} ({}){}", text, source,
                     compares ? fmt::format(", {}× analytic", number_text(value / *analytic)) : "");
}

std::string epilogue_of(const Measurement& m) {
  const EpilogueFields epilogue = m.identity.epilogue.value_or(EpilogueFields{});
  std::vector<std::string> parts;
  if (epilogue.bias) parts.emplace_back("bias");
  if (epilogue.activation != "none") parts.push_back(epilogue.activation);
  if (epilogue.max_pool) parts.push_back("max-pool " + max_pool_of(m));
  if (parts.empty()) return "none";
  return fmt::format("{}{}", fmt::join(parts, ", "), m.place.fused ? " (fused)" : " (separate)");
}

std::string machine_name(const Studies& studies, const Measurement& m) {
  const Machine& machine = studies.machines[m.machine];
  return machine.tag.empty() ? machine.cpu : machine.tag + ": " + machine.cpu;
}

// "f32, nhwc, strict, warm cache, 2 threads"; of a row that ran on fewer than its device has "1 of 2 threads".
std::string type_text(const Measurement& m) {
  std::string text = m.identity.dtype;
  for (const std::string& part : {m.identity.layout, m.identity.math}) text += part.empty() ? "" : ", " + part;
  text += ", " + m.place.cache + " cache";
  if (!m.place.threads) return text;
  return text + ", " + threads_text(*m.place.running_threads(), m.place.used_threads ? *m.place.threads : 0);
}

std::string quantity_text(const Quantity& q, const char* unit) {
  return sourced(si_text(q.value, unit), q.source, q.value, q.analytic);
}

using CardRows = std::vector<std::pair<std::string, std::string>>;  // name, value

void add_numbers(const Measurement& m, CardRows& rows) {
  rows.emplace_back("T", fmt::format("{} (quartiles {} … {}; {} runs, {})", seconds_text(m.time.seconds),
                                     seconds_text(m.time.q1), seconds_text(m.time.q3), m.time.runs, m.time.source));
  rows.emplace_back("W", quantity_text(m.work, "FLOP"));
  for (const char* level : kLevels) {
    const auto found = m.traffic.find(level);
    if (found != m.traffic.end()) rows.emplace_back("Q " + level_text(level), quantity_text(found->second, "B"));
  }
  if (m.work.value > 0) {
    rows.emplace_back("Intensity", intensity_text(m) + " FLOP/byte");
    rows.emplace_back("Performance", flops_text(m.flops()));
  }
  if (m.work.value == 0 || m.identity.only_moves_bytes()) rows.emplace_back("Bandwidth", bandwidth_text(m.bandwidth()));
}

// The calls of a program, a region or a GPU kernel; T is that of one call.
void add_calls(const Measurement& m, CardRows& rows) {
  if (!m.called) return;
  rows.emplace_back("Calls", std::to_string(m.called->calls));
  rows.emplace_back("Total time", seconds_text(m.called->seconds));
  if (m.called->share) rows.emplace_back("Share", percent_text(100 * *m.called->share));
  if (!m.called->region.empty()) rows.emplace_back("Region", m.called->region);
}

void add_verdict(const Measurement& m, CardRows& rows) {
  const Verdict& verdict = m.verdict;
  rows.emplace_back("Of the roof", percent_text(verdict.percent_of_roof));
  rows.emplace_back("Bound by", verdict.bound.empty() ? "unknown: no ceiling was measured" : verdict.bound);
  if (!verdict.roof.empty()) rows.emplace_back("Roof", verdict.roof);
  if (next_limit(verdict) != nullptr) rows.emplace_back("Headroom", headroom_text(verdict));
  for (const std::string& flag : verdict.flags) rows.emplace_back("⚠ Flag", flag);
  if (m.accuracy.max_error && m.accuracy.error_bound) {
    rows.emplace_back("Error", fmt::format("{:.2e} (bound {:.2e})", *m.accuracy.max_error, *m.accuracy.error_bound));
  }
}

// Instructions and how they accessed global and shared memory.
void add_instructions(const Measurement& m, CardRows& rows) {
  if (!m.instructions) return;
  const perf::InstructionCounts& counts = *m.instructions;
  rows.emplace_back("Warp instructions",
                    fmt::format("{} ({} GIPS); {:.0f} % of their threads active", si_text(counts.warp, ""),
                                number_text(counts.warp / m.time.seconds / 1e9), 100 * counts.active_share()));
  const auto per_access = [&](const char* level, const char* name, const char* unit) {
    const auto found = counts.levels.find(level);
    if (found != counts.levels.end())
      rows.emplace_back(name, fmt::format("{} {} a load or store",
                                          number_text(found->second.transactions / found->second.instructions), unit));
  };
  per_access("global", "Global memory", "sectors");
  per_access("shared", "Shared memory", "wavefronts");
}

// The energy of one call, including idle power.
void add_energy(const Measurement& m, CardRows& rows) {
  if (!m.energy) return;
  const EnergyFields& energy = *m.energy;
  if (!energy.joules) {
    rows.emplace_back("Energy", "unknown: " + energy.reason);
    return;
  }
  rows.emplace_back("Energy",
                    fmt::format("{} ± {:.0f} % ({:.0f} W, {}, idle power included)", joules_text(*energy.joules),
                                100 * energy.uncertainty, energy.watts, energy.by));
  if (m.work.value > 0) rows.emplace_back("Efficiency", si_text(*m.flop_per_joule(), "FLOP/J"));
}

// What would help, and what the naive convolution and an unfused pool would cost.
void add_insight(const Measurement& m, CardRows& rows) {
  if (m.regime) {
    rows.emplace_back("Regime", m.regime->name + ": " + m.regime->evidence);
    for (const std::string& advice : m.regime->advice) rows.emplace_back("What helps", advice);
  }
  if (m.scaling)
    rows.emplace_back("Twice the batch", fmt::format("{:.2f} times T for {:.2f} times the least bytes", m.scaling->time,
                                                     m.scaling->bytes));
  if (m.naive && m.naive->seconds) rows.emplace_back("Naive model", seconds_text(*m.naive->seconds));
  if (m.fusion) rows.emplace_back("Fusion saves", si_text(m.fusion->bytes_saved, "B"));
}

// The hover card of a measurement, ready to show: [[name, value], …].
json card_of(const Studies& studies, const Measurement& m) {
  CardRows rows{{"Device", m.series + (m.place.device_name.empty() ? "" : ", " + m.place.device_name)},
                {"Kernel", m.place.kernel},
                {"Problem", m.identity.problem},
                {"Type", type_text(m)}};
  if (m.identity.op == "conv2d") rows.emplace_back("Epilogue", epilogue_of(m));
  add_calls(m, rows);
  add_numbers(m, rows);
  add_verdict(m, rows);
  add_instructions(m, rows);
  add_energy(m, rows);
  add_insight(m, rows);
  if (studies.machines.size() > 1) rows.emplace_back("Machine", machine_name(studies, m));
  const std::string& suite = m.identity.suite;
  return {{"title", m.label + (suite.empty() ? "" : " · " + suite)}, {"rows", rows}};
}

// ---- facets -------------------------------------------------------------------------------------------------------

// The number behind `key` in a problem's descriptor, as 3 for "kh" in "mb1ic64ih224kh3"; 0 where there is none.
int number_after(const std::string& problem, const std::string& key) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = problem.find(key); at != std::string::npos; at = problem.find(key, at + 1)) {
    const size_t end = at + key.size();
    if ((at > 0 && is_letter(problem[at - 1])) || end >= problem.size() || !is_digit(problem[end])) continue;
    return std::atoi(problem.c_str() + end);
  }
  return 0;
}

// "3x3", "1x1", "3x3 depthwise", "3x3 grouped"; of other ops their name.
std::string layer_kind(const Measurement& m) {
  const std::string problem = m.identity.problem.substr(0, m.identity.problem.find('"'));
  const int window = number_after(problem, "kh"), groups = number_after(problem, "g");
  if (m.identity.op != "conv2d" || window == 0) return m.identity.op;
  const int width = number_after(problem, "kw");
  std::string kind = fmt::format("{}x{}", window, width > 0 ? width : window);
  if (groups > 1) kind += groups == number_after(problem, "ic") ? " depthwise" : " grouped";
  return kind;
}

// The properties that the page's filters choose by.
struct Facet {
  const char* name;
  const char* title;
  std::string (*of)(const Measurement&);
};
constexpr std::array<Facet, 8> kFacets = {{
    {"device", "Device", [](const Measurement& m) { return m.series; }},
    {"precision", "Data type", [](const Measurement& m) { return precision_of(m); }},
    {"source", "Q from", [](const Measurement& m) { return source_of(m); }},
    {"cache", "Cache", [](const Measurement& m) { return m.place.cache; }},
    {"layer", "Layer", [](const Measurement& m) { return layer_kind(m); }},
    {"suite", "Suite", [](const Measurement& m) { return m.identity.suite; }},
    {"bound", "Bound by", [](const Measurement& m) { return m.verdict.bound.empty() ? "unknown" : m.verdict.bound; }},
    {"flags", "Flags", [](const Measurement& m) { return std::string(m.flagged() ? "flagged" : "not flagged"); }},
}};

// ---- groups, series, points ---------------------------------------------------------------------------------------

std::string value_text(const Ceiling& c) {
  return c.is_bandwidth() ? bandwidth_text(c.limit.value) : flops_text(c.limit.value);
}

json roof_json(const Ceiling& c, const RoofGroup& group) {
  json roof{{"name", c.name},   {"value", c.limit.value}, {"q1", c.limit.q1},
            {"q3", c.limit.q3}, {"text", value_text(c)},  {"bandwidth", c.is_bandwidth()}};
  if (c.limit.low && c.limit.high) {
    roof["low"] = *c.limit.low;
    roof["high"] = *c.limit.high;
  }
  if (!c.limit.doubt.empty()) roof["doubt"] = c.limit.doubt;
  if (c.limit.per_joule) roof["perJoule"] = *c.limit.per_joule;
  if (c.is_bandwidth()) {
    roof["level"] = c.level;
    roof["title"] = level_name(c);
  } else {
    roof["isa"] = c.isa;
    roof["dtype"] = c.dtype;
    roof["minor"] = group.has_fused_twin(c);  // hidden until the reader asks for it
  }
  return roof;
}

// Warp instructions a second that the group's GPU issues; 0 where it was not measured.
double issue_rate(const Studies& studies, const RoofGroup& group) {
  double best = 0;
  for (const Rate& rate : studies.rates) {
    const bool same_gpu = group.gpu < 0 || rate.device.ends_with(fmt::format(":{}", group.gpu));
    const bool same_machine = studies.machines[rate.machine].tag == studies.machines[group.machine].tag;
    if (rate.unit == "instruction/s" && group.kind == rate.device_kind && same_gpu && same_machine)
      best = std::max(best, rate.limit.value);
  }
  return best;
}

json groups_json(const Studies& studies, const std::vector<RoofGroup>& groups) {
  json all = json::array();
  for (const RoofGroup& group : groups) {
    json one{{"title", title_of(group, groups, studies)}, {"kind", to_string(group.kind)}};
    one["issue"] = issue_rate(studies, group);
    one["roofs"] = json::array();
    for (const Ceiling& c : group.roofs) one["roofs"].push_back(roof_json(c, group));
    all.push_back(std::move(one));
  }
  return all;
}

// What must be equal for two rows to be the same layer, wherever they ran.
std::string layer_of(const Measurement& m) {
  const EpilogueFields epilogue = m.identity.epilogue.value_or(EpilogueFields{});
  const std::string problem = m.identity.problem.substr(0, m.identity.problem.find('"'));
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", m.identity.op, problem.empty() ? m.identity.name : problem,
                     epilogue.bias, epilogue.activation, max_pool_of(m), m.place.cache, m.identity.layout.empty());
}

json traffic_json(const Measurement& m) {
  json levels = json::object();
  for (const auto& [level, q] : m.traffic) {
    levels[level] = {{"bytes", q.value}, {"source", q.source}};
    if (q.spread.q1 && q.spread.q3) levels[level]["q1"] = *q.spread.q1, levels[level]["q3"] = *q.spread.q3;
  }
  return levels;
}

// What the page's instruction roofline needs: levels, and the share of threads that did something.
json instructions_json(const perf::InstructionCounts& counts) {
  json levels = json::object();
  for (const auto& [name, level] : counts.levels) {
    levels[name] = {{"instructions", level.instructions}, {"transactions", level.transactions}};
  }
  return {{"active", counts.active_share()}, {"levels", std::move(levels)}};
}

json point_json(const Studies& studies, const Measurement& m) {
  json point = card_of(studies, m);
  for (const Facet& facet : kFacets) point["facets"][facet.name] = facet.of(m);
  point["label"] = m.label;
  point["problem"] = m.identity.problem;
  point["kernel"] = m.place.kernel;
  point["study"] = m.machine;
  point["date"] = studies.machines[m.machine].date;
  point["series"] = m.series;
  point["precision"] = precision_of(m);
  point["dtype"] = m.identity.dtype;
  point["arithmetic"] = m.place.arithmetic.dtype.empty() ? m.identity.dtype : m.place.arithmetic.dtype;
  point["products"] = m.place.arithmetic.products;
  point["source"] = source_of(m);
  point["threads"] = m.place.threads.value_or(0);
  point["cold"] = m.place.cache != "warm";
  point["flop"] = m.work.value;
  point["seconds"] = m.time.seconds;
  point["q1"] = m.time.q1;
  point["q3"] = m.time.q3;
  point["count"] = m.identity.count.value_or(1);
  if (m.instructions) point["instructions"] = instructions_json(*m.instructions);
  if (m.energy && m.energy->joules) point["joules"] = *m.energy->joules;
  point["traffic"] = traffic_json(m);
  point["bound"] = m.verdict.bound;
  point["roof"] = m.verdict.roof;
  if (m.verdict.percent_of_roof) point["percent"] = *m.verdict.percent_of_roof;
  if (next_limit(m.verdict) != nullptr) point["headroom"] = headroom_text(m.verdict);
  point["flags"] = m.verdict.flags;
  return point;
}

}  // namespace

std::string percent_text(const std::optional<double>& percent) {
  return percent ? fmt::format("{:.1f} %", *percent) : "–";
}

json page_data(const Studies& studies) {
  const std::vector<RoofGroup> groups = roof_groups(studies);
  const std::vector<int> group_of = group_of_measurements(studies, groups);
  json data{{"groups", groups_json(studies, groups)}, {"series", json::array()}, {"precisions", json::array()}};
  const std::vector<std::string> series = series_of(studies);
  for (size_t i = 0; i < series.size(); ++i) data["series"].push_back({{"name", series[i]}, {"path", shape_path(i)}});
  for (const std::string& one : precisions_of(studies)) {
    data["precisions"].push_back({{"name", one}, {"path", glyph_path(one)}});
  }
  data["levels"] = json::array();
  for (const char* level : kLevels) data["levels"].push_back({level, level_text(level)});
  data["facets"] = json::array();
  for (const Facet& facet : kFacets) data["facets"].push_back({{"name", facet.name}, {"title", facet.title}});
  data["points"] = json::array();
  std::map<std::string, size_t> layers;
  for (size_t i = 0; i < studies.measurements.size(); ++i) {
    const Measurement& m = studies.measurements[i];
    json point = point_json(studies, m);
    point["group"] = group_of[i];
    point["layer"] = layers.try_emplace(layer_of(m), layers.size()).first->second;
    data["points"].push_back(std::move(point));
  }
  return data;
}

}  // namespace gable::bench::report
