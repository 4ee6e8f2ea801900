// index.html. Everything that comes from a study passes escape_markup() or, for the script's data, script_json().
#include "bench/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/report/page_assets.h"
#include "bench/report/svg.h"
#include "bench/report/text.h"
#include "bench/report/trainium.h"

namespace gable::bench::report {
namespace {

using nlohmann::json;

// JSON inside <script>: no "<" can end the element, and the separators that old scripts took for line ends are spelt
// out.
std::string script_json(const json& value) {
  const std::string plain = value.dump(-1, ' ', true, json::error_handler_t::replace);
  std::string out;
  for (char c : plain) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// "3.70 GFLOP (counter), 1.02× analytic"; an analytic value needs no comparison with itself.
std::string sourced(const std::string& text, const std::string& source, double value, std::optional<double> analytic) {
  const bool compares = source != "analytic" && analytic && *analytic > 0;
  return fmt::format("{} ({}){}", text, source,
                     compares ? fmt::format(", {}× analytic", number_text(value / *analytic)) : "");
}

std::string epilogue_of(const Measurement& m) {
  std::vector<std::string> parts;
  if (m.bias) parts.push_back("bias");
  if (!m.activation.empty() && m.activation != "none") parts.push_back(m.activation);
  if (!m.max_pool.empty()) parts.push_back("max-pool " + m.max_pool);
  if (parts.empty()) return "none";
  return fmt::format("{}{}", fmt::join(parts, ", "), m.fused ? " (fused)" : " (separate)");
}

std::string machine_name(const Studies& studies, const Measurement& m) {
  const Machine& machine = studies.machines[m.machine];
  return machine.tag.empty() ? machine.cpu : machine.tag + ": " + machine.cpu;
}

std::string percent_text(const std::optional<double>& percent) {
  return percent ? fmt::format("{:.1f} %", *percent) : "–";
}

// The hover card of a measurement, ready to show: [[name, value], …].
json card_of(const Studies& studies, const Measurement& m) {
  json rows = json::array();
  auto add = [&](const std::string& name, const std::string& value) { rows.push_back({name, value}); };
  add("Device", m.series + (m.device_name.empty() ? "" : ", " + m.device_name));
  add("Kernel", m.kernel);
  add("Problem", m.problem);
  add("Type", m.dtype + (m.layout.empty() ? "" : ", " + m.layout) + (m.math.empty() ? "" : ", " + m.math) + ", " +
                  m.cache + " cache" + (m.threads ? fmt::format(", {} threads", *m.threads) : ""));
  if (m.op == "conv2d") add("Epilogue", epilogue_of(m));
  add("T", fmt::format("{} (quartiles {} … {}; {} runs, {})", seconds_text(m.time.seconds), seconds_text(m.time.q1),
                       seconds_text(m.time.q3), m.time.runs, m.time.source));
  add("W", sourced(si_text(m.work.flop, "FLOP"), m.work.source, m.work.flop, m.work.analytic));
  for (const char* level : {"dram", "l3", "l2", "l1"}) {
    auto it = m.traffic.find(level);
    if (it == m.traffic.end()) continue;
    const Traffic& q = it->second;
    add("Q " + level_text(level), sourced(si_text(q.bytes, "B"), q.source, q.bytes, q.analytic));
  }
  add("Intensity", number_text(m.intensity()) + " FLOP/byte");
  add("Performance", flops_text(m.flops()));
  if (m.working_set_bytes) add("Bandwidth", bandwidth_text(m.bandwidth()));
  add("Of the roof", percent_text(m.percent_of_roof));
  add("Bound by", m.bound.empty() ? "unknown: no ceiling was measured" : m.bound);
  if (m.max_error && m.error_bound) {
    add("Error", fmt::format("{:.2e} (bound {:.2e})", *m.max_error, *m.error_bound));
  }
  if (studies.machines.size() > 1) add("Machine", machine_name(studies, m));
  return {{"title", m.label + (m.suite.empty() ? "" : " · " + m.suite)}, {"rows", rows}};
}

json data_of(const Studies& studies) {
  json points = json::array();
  for (const Measurement& m : studies.measurements) {
    json point = card_of(studies, m);
    point["facets"] = {{"device", m.series}, {"dtype", m.dtype}, {"cache", m.cache}, {"suite", m.suite}};
    points.push_back(std::move(point));
  }
  return points;
}

// ---- filters ------------------------------------------------------------------------------------------------------

struct Choice {
  std::string value, swatch;
};

std::string filter(const std::string& facet, const std::string& title, const std::vector<Choice>& choices) {
  std::string out = fmt::format("<fieldset><legend>{}</legend>", title);
  for (const Choice& choice : choices) {
    out += fmt::format(R"(<label><input type="checkbox" checked data-facet="{}" value="{}">{}<span>{}</span></label>)",
                       facet, escape_markup(choice.value), choice.swatch,
                       choice.value.empty() ? "(none)" : escape_markup(choice.value));
  }
  return out + "</fieldset>\n";
}

std::vector<Choice> distinct(const Studies& studies, std::string Measurement::*field) {
  std::vector<Choice> choices;
  for (const Measurement& m : studies.measurements) {
    auto same = [&](const Choice& choice) { return choice.value == m.*field; };
    if (std::none_of(choices.begin(), choices.end(), same)) choices.push_back({m.*field, ""});
  }
  return choices;
}

std::string filters(const Studies& studies) {
  std::vector<Choice> devices = distinct(studies, &Measurement::series);
  for (size_t i = 0; i < devices.size(); ++i) devices[i].swatch = marker_svg(shape_of(i), "", true);
  std::vector<Choice> dtypes;
  for (const std::string& dtype : dtypes_of(studies)) dtypes.push_back({dtype, marker_svg(Shape::circle, dtype, true)});
  std::vector<Choice> caches = distinct(studies, &Measurement::cache);
  for (Choice& cache : caches) cache.swatch = marker_svg(Shape::circle, "", cache.value == "warm");
  return "<form class=\"filters\" aria-label=\"filters\" hidden>\n" + filter("device", "Device", devices) +
         filter("dtype", "Data type", dtypes) + filter("cache", "Cache", caches) +
         filter("suite", "Suite", distinct(studies, &Measurement::suite)) +
         "<p class=\"shown\" role=\"status\" aria-live=\"polite\"></p></form>\n";
}

// ---- tables -------------------------------------------------------------------------------------------------------

struct Cell {
  std::string text;
  std::optional<double> number;  // what to sort by
};

std::string cell_markup(const Cell& cell) {
  if (!cell.number) return "<td>" + escape_markup(cell.text) + "</td>";
  return fmt::format(R"(<td class="n" data-v="{}">{}</td>)", *cell.number, escape_markup(cell.text));
}

struct Head {
  const char* text;
  bool numeric;
};

template <size_t N>
std::string table_markup(const char* id, const char* caption, const std::array<Head, N>& heads,
                         const std::string& body) {
  std::string out = fmt::format(R"(<div class="scroll" tabindex="0" role="region" aria-label="{0}"><table id="{1}">)"
                                R"(<caption class="hidden">{0}</caption><thead><tr>)",
                                caption, id);
  for (const Head& head : heads) {
    out += fmt::format(R"(<th scope="col"{}>{}</th>)", head.numeric ? R"( class="n")" : "", head.text);
  }
  return out + "</tr></thead><tbody>\n" + body + "</tbody></table></div>\n";
}

std::string measurements_table(const Studies& studies) {
  constexpr std::array<Head, 16> kHeads = {{{"Name", false},
                                            {"Suite", false},
                                            {"Data type", false},
                                            {"Cache", false},
                                            {"Device", false},
                                            {"Kernel", false},
                                            {"T", true},
                                            {"q1", true},
                                            {"q3", true},
                                            {"W", true},
                                            {"Q DRAM", true},
                                            {"FLOP/byte", true},
                                            {"GFLOP/s", true},
                                            {"% of roof", true},
                                            {"Bound by", false},
                                            {"Problem", false}}};
  std::string body;
  for (size_t i = 0; i < studies.measurements.size(); ++i) {
    const Measurement& m = studies.measurements[i];
    const Traffic& dram = m.traffic.at("dram");
    const std::array<Cell, kHeads.size()> cells = {
        {{m.label, {}},
         {m.suite, {}},
         {m.dtype, {}},
         {m.cache, {}},
         {m.series, {}},
         {m.kernel, {}},
         {seconds_text(m.time.seconds), m.time.seconds},
         {seconds_text(m.time.q1), m.time.q1},
         {seconds_text(m.time.q3), m.time.q3},
         {si_text(m.work.flop, "FLOP"), m.work.flop},
         {si_text(dram.bytes, "B"), dram.bytes},
         {number_text(m.intensity()), m.intensity()},
         {number_text(m.flops() / 1e9), m.flops() / 1e9},
         {m.percent_of_roof ? fmt::format("{:.1f}", *m.percent_of_roof) : "–", m.percent_of_roof.value_or(-1)},
         {m.bound.empty() ? "–" : m.bound, {}},
         {m.problem, {}}}};
    body += fmt::format(R"(<tr data-i="{}">)", i);
    for (const Cell& cell : cells) body += cell_markup(cell);
    body += "</tr>\n";
  }
  return table_markup("measurements", "Measurements", kHeads, body);
}

std::string trainium_section(const Studies& studies) {
  constexpr std::array<Head, 9> kHeads = {{{"Primitive", false},
                                           {"Data type", false},
                                           {"Device", false},
                                           {"T", true},
                                           {"Rate", true},
                                           {"% of roof", true},
                                           {"T on Trainium", true},
                                           {"% of peak there", true},
                                           {"Data type there", false}}};
  std::string body;
  for (const TrainiumRow& row : trainium_rows(studies)) {
    const Measurement& m = *row.here;
    const std::array<Cell, kHeads.size()> cells = {
        {{m.label, {}},
         {m.dtype, {}},
         {m.series, {}},
         {seconds_text(m.time.seconds), m.time.seconds},
         {rate_text(m), rate_of(m)},
         {m.percent_of_roof ? fmt::format("{:.1f}", *m.percent_of_roof) : "–", m.percent_of_roof.value_or(-1)},
         {row.there ? seconds_text(row.there->seconds) : "–", row.there ? row.there->seconds : -1},
         {row.there && row.there->percent > 0 ? fmt::format("{:.0f}", row.there->percent) : "–",
          row.there ? row.there->percent : -1},
         {row.there ? row.there->dtype : "–", {}}}};
    body += "<tr>";
    for (const Cell& cell : cells) body += cell_markup(cell);
    body += "</tr>\n";
  }
  return table_markup("trainium", "Beside the Trainium study", kHeads, body);
}

// What ceilings and rates have in common, as a row.
struct Limit {
  const std::string &name, &device, &formula;
  size_t machine;
  int threads;  // 0: a GPU's
  double value, q1, q3;
  std::optional<double> theoretical;
};

std::string limit_row(const Limit& limit, const Studies& studies, const std::function<std::string(double)>& text) {
  const std::string& tag = studies.machines[limit.machine].tag;
  const std::string share =
      limit.theoretical ? fmt::format("{} ({:.0f} %)", text(*limit.theoretical), 100 * limit.value / *limit.theoretical)
                        : "–";
  const std::array<Cell, 7> cells = {{{limit.name, {}},
                                      {tag.empty() ? limit.device : limit.device + " · " + tag, {}},
                                      {limit.threads > 0 ? std::to_string(limit.threads) : "–", limit.threads},
                                      {text(limit.value), limit.value},
                                      {text(limit.q1) + " … " + text(limit.q3), limit.q1},
                                      {share, limit.theoretical.value_or(-1)},
                                      {limit.formula, {}}}};
  std::string row = "<tr>";
  for (const Cell& cell : cells) row += cell_markup(cell);
  return row + "</tr>\n";
}

std::string ceilings_table(const Studies& studies) {
  constexpr std::array<Head, 7> kHeads = {{{"Ceiling", false},
                                           {"Device", false},
                                           {"Threads", true},
                                           {"Measured", true},
                                           {"Quartiles", true},
                                           {"Theoretical", true},
                                           {"Formula", false}}};
  std::string body;
  for (const Ceiling& c : studies.ceilings) {
    body +=
        limit_row({c.name, c.device, c.formula, c.machine, c.threads.value_or(0), c.value, c.q1, c.q3, c.theoretical},
                  studies, c.is_bandwidth() ? bandwidth_text : flops_text);
  }
  for (const Rate& r : studies.rates) {
    body += limit_row({r.name, r.device, r.formula, r.machine, 0, r.value, r.q1, r.q3, r.theoretical}, studies,
                      [&](double value) { return rate_text(value, r.unit); });
  }
  return table_markup("ceilings", "Ceilings", kHeads, body);
}

std::string machine_tables(const Studies& studies) {
  std::string out;
  for (size_t i = 0; i < studies.machines.size(); ++i) {
    const Machine& machine = studies.machines[i];
    if (studies.machines.size() > 1) {
      const std::string name = machine.tag.empty() ? fmt::format("Study {}", i + 1)
                                                   : fmt::format("Machine {} (study {})", machine.tag, i + 1);
      out += "<h3>" + name + "</h3>\n";
    }
    out += "<dl class=\"machine\">";
    for (const auto& [key, value] : machine.facts) {
      out += "<div><dt>" + escape_markup(key) + "</dt><dd>" + escape_markup(value) + "</dd></div>";
    }
    out += "</dl>\n";
  }
  return out;
}

std::string refused_table(const Studies& studies) {
  if (studies.refused.empty()) return "<p class=\"soft\">Nothing was refused.</p>\n";
  constexpr std::array<Head, 6> kHeads = {{{"Name", false},
                                           {"Suite", false},
                                           {"Data type", false},
                                           {"Device", false},
                                           {"Reason", false},
                                           {"Problem", false}}};
  std::string body;
  for (const Refused& r : studies.refused) {
    body += "<tr>";
    for (const std::string* text : {&r.name, &r.suite, &r.dtype, &r.device, &r.reason, &r.problem}) {
      body += cell_markup({*text, {}});
    }
    body += "</tr>\n";
  }
  return table_markup("refused", "Refused", kHeads, body);
}

std::string subtitle(const Studies& studies) {
  std::vector<std::string> lines;
  for (const std::string& line : subtitle_of(studies)) lines.push_back(escape_markup(line));
  return fmt::format("{}", fmt::join(lines, "<br>"));
}

std::string styles() {
  const std::string light = scheme_properties(false), dark = scheme_properties(true);
  return fmt::format(
      ":root{{color-scheme:light;{0}}}"
      "@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{1}}}}}"
      ":root[data-theme=dark]{{color-scheme:dark;{1}}}\n{2}\n{3}",
      light, dark, figure_rules(), kPageCss);
}

std::string section(const std::string& title, const std::string& content) {
  return "<section><h2>" + title + "</h2>\n" + content + "</section>\n";
}

}  // namespace

std::string html(const Studies& studies) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      // The page asks for nothing: even a fault in the escaping could not reach the network.
      "<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none';style-src 'unsafe-inline';script-src 'unsafe-inline'\">\n"
      "<title>gable: roofline</title>\n<style>" +
      styles() + "</style>\n</head>\n<body>\n";
  out += "<header><div><h1>Roofline</h1><p class=\"soft\">" + subtitle(studies) +
         "</p></div><button type=\"button\" class=\"theme\" hidden>Dark</button></header>\n<main>\n";
  const bool two = panels_of(studies).size() > 1;
  out += filters(studies);
  out += fmt::format("<section class=\"plot {}\">\n", two ? "two" : "one") + inline_svg(studies, FigureSize::wide) +
         inline_svg(studies, FigureSize::narrow) + "</section>\n";
  out += section("Measurements", measurements_table(studies));
  if (!trainium_rows(studies).empty()) out += section("Beside the Trainium study", trainium_section(studies));
  out += section("Ceilings", ceilings_table(studies));
  out += section("Refused", refused_table(studies));
  out += section(studies.machines.size() > 1 ? "Machines" : "Machine", machine_tables(studies));
  out += "</main>\n<div class=\"card\" hidden aria-hidden=\"true\"></div>\n";
  out += "<script type=\"application/json\" id=\"data\">" + script_json(data_of(studies)) + "</script>\n";
  out += "<script>" + std::string(kPageScript) + "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace gable::bench::report
