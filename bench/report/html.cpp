// index.html. Everything that comes from a study passes escape_markup() or, for the script's data, script_json().
#include "bench/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/common/text.h"
#include "bench/report/page_assets.h"
#include "bench/report/svg.h"
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

std::string percent_text(const std::optional<double>& percent) {
  return percent ? fmt::format("{:.1f} %", *percent) : "–";
}

// "f32, nhwc, strict, warm cache, 2 threads".
std::string type_text(const Measurement& m) {
  std::string text = m.identity.dtype;
  for (const std::string& part : {m.identity.layout, m.identity.math}) text += part.empty() ? "" : ", " + part;
  text += ", " + m.place.cache + " cache";
  return m.place.threads ? fmt::format("{}, {} threads", text, *m.place.threads) : text;
}

std::string quantity_text(const Quantity& q, const char* unit) {
  return sourced(si_text(q.value, unit), q.source, q.value, q.analytic);
}

using CardRows = std::vector<std::pair<std::string, std::string>>;  // name, value

void add_numbers(const Measurement& m, CardRows& rows) {
  rows.emplace_back("T", fmt::format("{} (quartiles {} … {}; {} runs, {})", seconds_text(m.time.seconds),
                                     seconds_text(m.time.q1), seconds_text(m.time.q3), m.time.runs, m.time.source));
  rows.emplace_back("W", quantity_text(m.work, "FLOP"));
  for (const char* level : {"dram", "l3", "l2", "l1"}) {
    const auto found = m.traffic.find(level);
    if (found != m.traffic.end()) rows.emplace_back("Q " + level_text(level), quantity_text(found->second, "B"));
  }
  rows.emplace_back("Intensity", number_text(m.intensity()) + " FLOP/byte");
  rows.emplace_back("Performance", flops_text(m.flops()));
  if (m.identity.only_moves_bytes()) rows.emplace_back("Bandwidth", bandwidth_text(m.bandwidth()));
}

// Of a program, a region or a GPU kernel: T is of one call.
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
  for (const std::string& flag : verdict.flags) rows.emplace_back("⚠ Flag", flag);
  if (m.accuracy.max_error && m.accuracy.error_bound) {
    rows.emplace_back("Error", fmt::format("{:.2e} (bound {:.2e})", *m.accuracy.max_error, *m.accuracy.error_bound));
  }
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
  if (studies.machines.size() > 1) rows.emplace_back("Machine", machine_name(studies, m));
  const std::string& suite = m.identity.suite;
  return {{"title", m.label + (suite.empty() ? "" : " · " + suite)}, {"rows", rows}};
}

// The properties that the page's filters choose by.
struct Facet {
  const char* name;
  const char* title;
  std::string (*of)(const Measurement&);
};
constexpr std::array<Facet, 4> kFacets = {{
    {"device", "Device", [](const Measurement& m) { return m.series; }},
    {"dtype", "Data type", [](const Measurement& m) { return m.identity.dtype; }},
    {"cache", "Cache", [](const Measurement& m) { return m.place.cache; }},
    {"suite", "Suite", [](const Measurement& m) { return m.identity.suite; }},
}};

json data_of(const Studies& studies) {
  json points = json::array();
  for (const Measurement& m : studies.measurements) {
    json point = card_of(studies, m);
    for (const Facet& facet : kFacets) point["facets"][facet.name] = facet.of(m);
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

std::vector<Choice> distinct(const Studies& studies, const Facet& facet) {
  std::vector<Choice> choices;
  for (const Measurement& m : studies.measurements) {
    const std::string value = facet.of(m);
    auto same = [&](const Choice& choice) { return choice.value == value; };
    if (std::none_of(choices.begin(), choices.end(), same)) choices.push_back({value, ""});
  }
  return choices;
}

std::string filters(const Studies& studies) {
  const auto& [device, dtype, cache, suite] = kFacets;
  std::vector<Choice> devices = distinct(studies, device);
  for (size_t i = 0; i < devices.size(); ++i) devices[i].swatch = marker_svg(shape_of(i), "", true);
  std::vector<Choice> dtypes;
  for (const std::string& one : dtypes_of(studies)) dtypes.push_back({one, marker_svg(Shape::circle, one, true)});
  std::vector<Choice> caches = distinct(studies, cache);
  for (Choice& one : caches) one.swatch = marker_svg(Shape::circle, "", one.value == "warm");
  return "<form class=\"filters\" aria-label=\"filters\" hidden>\n" + filter(device.name, device.title, devices) +
         filter(dtype.name, dtype.title, dtypes) + filter(cache.name, cache.title, caches) +
         filter(suite.name, suite.title, distinct(studies, suite)) +
         "<p class=\"shown\" role=\"status\" aria-live=\"polite\"></p></form>\n";
}

// ---- tables -------------------------------------------------------------------------------------------------------

struct Cell {
  std::string text;
  std::optional<double> number;  // the value to sort by
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

std::string flags_text(const Measurement& m) {
  return m.flagged() ? fmt::format("⚠ {}", fmt::join(m.verdict.flags, "; ")) : "";
}

std::string measurements_table(const Studies& studies) {
  constexpr std::array<Head, 18> kHeads = {{{"Name", false},
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
                                            {"Roof", false},
                                            {"Flags", false},
                                            {"Problem", false}}};
  std::string body;
  for (size_t i = 0; i < studies.measurements.size(); ++i) {
    const Measurement& m = studies.measurements[i];
    const double bytes = m.traffic.at("dram").value;
    const std::array<Cell, kHeads.size()> cells = {
        {{m.label, {}},
         {m.identity.suite, {}},
         {m.identity.dtype, {}},
         {m.place.cache, {}},
         {m.series, {}},
         {m.place.kernel, {}},
         {seconds_text(m.time.seconds), m.time.seconds},
         {seconds_text(m.time.q1), m.time.q1},
         {seconds_text(m.time.q3), m.time.q3},
         {si_text(m.work.value, "FLOP"), m.work.value},
         {si_text(bytes, "B"), bytes},
         {number_text(m.intensity()), m.intensity()},
         {number_text(m.flops() / 1e9), m.flops() / 1e9},
         {m.verdict.percent_of_roof ? fmt::format("{:.1f}", *m.verdict.percent_of_roof) : "–",
          m.verdict.percent_of_roof.value_or(-1)},
         {m.verdict.bound.empty() ? "–" : m.verdict.bound, {}},
         {m.verdict.roof.empty() ? "–" : m.verdict.roof, {}},
         {flags_text(m), {}},
         {m.identity.problem, {}}}};
    body += fmt::format(R"(<tr data-i="{}"{}>)", i, m.flagged() ? R"( class="flagged")" : "");
    for (const Cell& cell : cells) body += cell_markup(cell);
    body += "</tr>\n";
  }
  return table_markup("measurements", "Measurements", kHeads, body);
}

std::string end_text(const ProgramEntry& program) {
  std::string text = "took " + seconds_text(program.seconds);
  if (program.cpu_seconds) text += fmt::format(", {} of CPU time", seconds_text(*program.cpu_seconds));
  if (program.processes > 1) text += fmt::format(", {} processes", program.processes);
  if (program.signal) text += fmt::format(", ended by signal {}", *program.signal);
  if (program.exit_code.value_or(0) != 0) text += fmt::format(", exit code {}", *program.exit_code);
  return text + (program.interrupted ? ", interrupted" : "");
}

// All parts of a program, those without W or Q with the reason.
std::string program_section(const Program& program, size_t number) {
  constexpr std::array<Head, 8> kHeads = {{{"Part", false},
                                           {"Name", false},
                                           {"Device", false},
                                           {"Region", false},
                                           {"Calls", true},
                                           {"Total time", true},
                                           {"Share", true},
                                           {"Not on the roofline", false}}};
  std::string body;
  for (const ProgramPart& part : program.parts) {
    const CallFields& called = part.called;
    const std::array<Cell, kHeads.size()> cells = {
        {{part.kind, {}},
         {part.name, {}},
         {part.device, {}},
         {called.region, {}},
         {std::to_string(called.calls), static_cast<double>(called.calls)},
         {seconds_text(called.seconds), called.seconds},
         {called.share ? percent_text(100 * *called.share) : "–", called.share.value_or(-1)},
         {part.reason, {}}}};
    body += "<tr>";
    for (const Cell& cell : cells) body += cell_markup(cell);
    body += "</tr>\n";
  }
  std::string text =
      fmt::format("<p class=\"program\"><code>{}</code> {}</p>\n", escape_markup(program.command), end_text(program));
  text += table_markup(fmt::format("program{}", number).c_str(), "Parts of the program", kHeads, body);
  for (const std::string& note : program.notes) text += "<p class=\"soft\">" + escape_markup(note) + "</p>\n";
  return text;
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
    const Measurement& m = *row.measurement;
    const std::array<Cell, kHeads.size()> cells = {
        {{m.label, {}},
         {m.identity.dtype, {}},
         {m.series, {}},
         {seconds_text(m.time.seconds), m.time.seconds},
         {rate_text(m), rate_of(m)},
         {m.verdict.percent_of_roof ? fmt::format("{:.1f}", *m.verdict.percent_of_roof) : "–",
          m.verdict.percent_of_roof.value_or(-1)},
         {row.trainium ? seconds_text(row.trainium->seconds) : "–", row.trainium ? row.trainium->seconds : -1},
         {row.trainium && row.trainium->percent > 0 ? fmt::format("{:.0f}", row.trainium->percent) : "–",
          row.trainium ? row.trainium->percent : -1},
         {row.trainium ? row.trainium->dtype : "–", {}}}};
    body += "<tr>";
    for (const Cell& cell : cells) body += cell_markup(cell);
    body += "</tr>\n";
  }
  return table_markup("trainium", "Beside the Trainium study", kHeads, body);
}

// A ceiling or a rate as a row.
struct LimitRow {
  const std::string &name, &device;
  int threads;  // 0 for a GPU
  size_t machine;
  const Limit& limit;
};

std::string limit_row(const LimitRow& row, const Studies& studies, const std::function<std::string(double)>& text) {
  const std::string& tag = studies.machines[row.machine].tag;
  const Limit& limit = row.limit;
  const std::string share =
      limit.theoretical ? fmt::format("{} ({:.0f} %)", text(*limit.theoretical), 100 * limit.value / *limit.theoretical)
                        : "–";
  const std::array<Cell, 7> cells = {{{row.name, {}},
                                      {tag.empty() ? row.device : row.device + " · " + tag, {}},
                                      {row.threads > 0 ? std::to_string(row.threads) : "–", row.threads},
                                      {text(limit.value), limit.value},
                                      {text(limit.q1) + " … " + text(limit.q3), limit.q1},
                                      {share, limit.theoretical.value_or(-1)},
                                      {limit.formula, {}}}};
  std::string markup = "<tr>";
  for (const Cell& cell : cells) markup += cell_markup(cell);
  return markup + "</tr>\n";
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
    body += limit_row({c.name, c.device, c.threads.value_or(0), c.machine, c.limit}, studies,
                      c.is_bandwidth() ? bandwidth_text : flops_text);
  }
  for (const Rate& r : studies.rates) {
    body += limit_row({r.name, r.device, 0, r.machine, r.limit}, studies,
                      [&](double value) { return bench::rate_text(value, r.unit); });
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
      // The page may load nothing: even a fault in the escaping could not reach the network.
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
  for (size_t i = 0; i < studies.programs.size(); ++i)
    out += section("Program", program_section(studies.programs[i], i));
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
