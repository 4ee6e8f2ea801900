// index.html. Everything that comes from a study passes escape_markup() or, for the script's data, script_json().
#include "bench/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "bench/common/text.h"
#include "bench/report/against.h"
#include "bench/report/page_assets.h"
#include "bench/report/page_data.h"
#include "bench/report/roofs.h"
#include "bench/report/svg.h"
#include "bench/report/totals.h"
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

// ---- tables -------------------------------------------------------------------------------------------------------

struct Cell {
  std::string text;
  std::optional<double> number;  // the value to sort by
};

std::string cell_markup(const Cell& cell) {
  if (!cell.number) return "<td>" + escape_markup(cell.text) + "</td>";
  return fmt::format(R"(<td class="n" data-v="{}">{}</td>)", *cell.number, escape_markup(cell.text));
}

std::string row_head(const Cell& cell) { return "<th scope=\"row\">" + escape_markup(cell.text) + "</th>"; }

struct Head {
  const char* text;
  bool numeric;
};

std::string table_markup(const char* id, const char* caption, std::span<const Head> heads, const std::string& body) {
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

// "32.1 GFLOP/s", or GB/s for a row without work.
std::string rate_cell(const Measurement& m) {
  return m.work.value > 0 ? flops_text(m.flops()) : bandwidth_text(m.bandwidth());
}

// Where "GFLOP/J" and "Energy" stand: behind "Flags", whose position page.css relies on.
constexpr std::ptrdiff_t kEnergyColumn = 12;

// The reason stands where the energy is not known.
void add_energy(const Measurement& m, std::vector<Cell>& cells) {
  const bool known = m.energy && m.energy->joules;
  const Cell efficiency =
      known ? Cell{number_text(*m.flop_per_joule() / 1e9), *m.flop_per_joule() / 1e9} : Cell{"–", -1.0};
  const Cell energy = known ? Cell{joules_text(*m.energy->joules), *m.energy->joules}
                            : Cell{m.energy && !m.energy->reason.empty() ? "– " + m.energy->reason : "–", -1.0};
  cells.insert(cells.begin() + kEnergyColumn, {efficiency, energy});
}

std::string measurements_table(const Studies& studies) {
  std::vector<Head> heads = {{"Name", false},   {"Data type", false}, {"Device", false},   {"Kernel", false},
                             {"T", true},       {"Rate", true},       {"% of roof", true}, {"Bound by", false},
                             {"Roof", false},   {"Against", true},    {"FLOP/byte", true}, {"Flags", false},
                             {"Suite", false},  {"Cache", false},     {"q1", true},        {"q3", true},
                             {"W", true},       {"Q DRAM", true},     {"GB/s", true},      {"W, Q from", false},
                             {"Problem", false}};
  const bool with_energy = std::any_of(studies.measurements.begin(), studies.measurements.end(),
                                       [](const Measurement& m) { return m.energy.has_value(); });
  if (with_energy) heads.insert(heads.begin() + kEnergyColumn, {{"GFLOP/J", true}, {"Energy", true}});
  const Baselines baselines(studies);
  std::string body;
  for (size_t i = 0; i < studies.measurements.size(); ++i) {
    const Measurement& m = studies.measurements[i];
    const auto dram = m.traffic.find("dram");
    const double bytes = dram == m.traffic.end() ? -1 : dram->second.value;
    const Measurement& other = baselines.of(m);
    const double factor = other.time.seconds / m.time.seconds;
    const std::string precision = precision_of(m);
    std::vector<Cell> cells = {{m.label, {}},
                               {precision == m.identity.dtype ? precision : m.identity.dtype + " " + precision, {}},
                               {m.series, {}},
                               {m.place.kernel, {}},
                               {seconds_text(m.time.seconds), m.time.seconds},
                               {rate_cell(m), m.work.value > 0 ? m.flops() : m.bandwidth()},
                               {m.verdict.percent_of_roof ? fmt::format("{:.1f}", *m.verdict.percent_of_roof) : "–",
                                m.verdict.percent_of_roof.value_or(-1)},
                               {m.verdict.bound.empty() ? "–" : m.verdict.bound, {}},
                               {m.verdict.roof.empty() ? "–" : m.verdict.roof, {}},
                               {other.series == m.series ? "–" : fmt::format("{:.2f}× {}", factor, other.series),
                                other.series == m.series ? 0 : factor},
                               {m.work.value > 0 ? number_text(m.intensity()) : "–", m.intensity()},
                               {flags_text(m), {}},
                               {m.identity.suite, {}},
                               {m.place.cache, {}},
                               {seconds_text(m.time.q1), m.time.q1},
                               {seconds_text(m.time.q3), m.time.q3},
                               {si_text(m.work.value, "FLOP"), m.work.value},
                               {bytes < 0 ? "–" : si_text(bytes, "B"), bytes},
                               {number_text(m.bandwidth() / 1e9), m.bandwidth() / 1e9},
                               {m.work.source + ", " + source_of(m), {}},
                               {m.identity.problem, {}}};
    if (with_energy) add_energy(m, cells);
    body += fmt::format(R"(<tr data-i="{}"{}>)", i, m.flagged() ? R"( class="flagged")" : "");
    for (const Cell& cell : cells) body += &cell == cells.data() ? row_head(cell) : cell_markup(cell);
    body += "</tr>\n";
  }
  return table_markup("measurements", "Measurements", heads, body);
}

std::string end_text(const ProgramEntry& program) {
  std::string text = "took " + seconds_text(program.seconds);
  if (program.cpu_seconds) text += fmt::format(", {} of CPU time", seconds_text(*program.cpu_seconds));
  if (program.processes > 1) text += fmt::format(", {} processes", program.processes);
  if (program.signal) text += fmt::format(", ended by signal {}", *program.signal);
  if (program.exit_code.value_or(0) != 0) text += fmt::format(", exit code {}", *program.exit_code);
  return text + (program.interrupted ? ", interrupted" : "");
}

// What takes the time of `what`, the best supported cause first.
std::string findings_markup(const std::string& what, const std::vector<Regime>& findings) {
  if (findings.empty()) return "";
  std::string text = "<p>Time of " + escape_markup(what) + " goes to</p>\n<ul>\n";
  for (const Regime& finding : findings) {
    text += fmt::format("<li><b>{}</b>: {}", escape_markup(finding.name), escape_markup(finding.evidence));
    for (const std::string& one : finding.advice) text += "<br><span class=\"soft\">" + escape_markup(one) + "</span>";
    text += "</li>\n";
  }
  return text + "</ul>\n";
}

// All parts of a program, those without W or Q with the reason.
std::string program_section(const Program& program, size_t number) {
  constexpr std::array<Head, 10> kHeads = {{{"Part", false},
                                            {"Name", false},
                                            {"Device", false},
                                            {"Region", false},
                                            {"Calls", true},
                                            {"Total time", true},
                                            {"Share", true},
                                            {"T", true},
                                            {"GFLOP/s", true},
                                            {"Not on the roofline", false}}};
  std::string body;
  for (const ProgramPart& part : program.parts) {
    const CallFields& called = part.called;
    const double rate = part.time && part.work ? part.work->flop / part.time->seconds / 1e9 : -1;
    const std::array<Cell, kHeads.size()> cells = {
        {{part.kind, {}},
         {part.name, {}},
         {part.device, {}},
         {called.region, {}},
         {std::to_string(called.calls), static_cast<double>(called.calls)},
         {seconds_text(called.seconds), called.seconds},
         {called.share ? percent_text(100 * *called.share) : "–", called.share.value_or(-1)},
         {part.time ? seconds_text(part.time->seconds) : "–", part.time ? part.time->seconds : -1},
         {rate >= 0 ? number_text(rate) : "–", rate},
         {part.reason, {}}}};
    body += "<tr>";
    for (const Cell& cell : cells) body += cell_markup(cell);
    body += "</tr>\n";
  }
  std::string text = fmt::format("<p><code>{}</code> {}</p>\n", escape_markup(program.command), end_text(program));
  text += table_markup(fmt::format("program{}", number).c_str(), "Parts of the program", kHeads, body);
  text += findings_markup("the program", program.findings);
  for (const ProgramPart& part : program.parts) text += findings_markup(part.name, part.findings);
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
  const perf::MeasuredLimit& limit;
};

std::string limit_row(const LimitRow& row, const Studies& studies, const std::function<std::string(double)>& text) {
  const std::string& tag = studies.machines[row.machine].tag;
  const perf::MeasuredLimit& limit = row.limit;
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
  if (studies.ceilings.empty() && studies.rates.empty())
    return "<p class=\"soft\">None were measured: the option --ceilings measures them.</p>\n";
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

// What --quick and the like say of the studies, each once with the tags of its machines.
std::vector<std::pair<std::string, std::string>> modes_of(const Studies& studies) {
  std::vector<std::pair<std::string, std::string>> modes;
  for (const Machine& machine : studies.machines) {
    for (const auto& [name, value] : machine.facts) {
      if (name != "mode") continue;
      for (size_t begin = 0; begin < value.size();) {
        const size_t end = std::min(value.find("; ", begin), value.size());
        const std::string words = value.substr(begin, end - begin);
        begin = end + 2;
        const auto same =
            std::find_if(modes.begin(), modes.end(), [&](const auto& other) { return other.first == words; });
        if (same == modes.end()) {
          modes.emplace_back(words, machine.tag);
        } else if (!machine.tag.empty()) {
          same->second += ", " + machine.tag;
        }
      }
    }
  }
  return modes;
}

// The machines, then what their studies left out: --quick's mode, refusals.
std::string subtitle(const Studies& studies) {
  std::vector<std::string> lines;
  for (const std::string& line : subtitle_of(studies)) lines.push_back(escape_markup(line));
  for (const auto& [words, tags] : modes_of(studies))
    lines.push_back(escape_markup(tags.empty() ? words : tags + ": " + words));
  if (!studies.refused.empty()) {
    lines.push_back(fmt::format("{} cases did not run: see “Refused” below the tables", studies.refused.size()));
  }
  return fmt::format("{}", fmt::join(lines, "<br>"));
}

std::string styles() {
  const std::string light = scheme_properties(false), dark = scheme_properties(true);
  return fmt::format(
      ":root{{color-scheme:light;{0}}}"
      "@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{1}}}}}"
      "@media screen{{:root[data-theme=dark]{{color-scheme:dark;{1}}}}}\n{2}\n{3}",
      light, dark, figure_rules(), kPageCss);
}

/// For text of several lines: escape_markup() takes a line break for a control character.
std::string escape_lines(std::string_view text) {
  std::string lines;
  while (true) {
    const std::size_t end = text.find('\n');
    lines += escape_markup(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string section(const std::string& title, const std::string& content) {
  return "<section><h2>" + title + "</h2>\n" + content + "</section>\n";
}

}  // namespace

std::string html(const Studies& studies) {
  const std::string title = figure_title(roof_groups(studies));
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      // The page may load nothing: even a fault in the escaping could not reach the network.
      "<meta http-equiv=\"Content-Security-Policy\" "
      // Images of data: are what the page makes of its own figure when it is saved as PNG.
      "content=\"default-src 'none';style-src 'unsafe-inline';script-src 'unsafe-inline';img-src data:\">\n"
      "<title>gable: " +
      title + "</title>\n<style>" + styles() + "</style>\n</head>\n<body>\n";
  out += "<nav class=\"skip\"></nav>\n<header><div><h1>" + title + "</h1><p class=\"soft\">" + subtitle(studies) +
         "</p></div></header>\n<main>\n";
  out += "<section id=\"study\" aria-label=\"figure\"><noscript>" + inline_svg(studies, FigureSize::wide) +
         "</noscript></section>\n";
  out += section("Measurements", measurements_table(studies));
  for (size_t i = 0; i < studies.programs.size(); ++i)
    out += section("Program", program_section(studies.programs[i], i));
  const std::string totals = totals_table(studies);
  if (!totals.empty()) {
    out += section("Networks", R"(<div class="scroll" tabindex="0" role="region" aria-label="Networks"><pre>)" +
                                   escape_lines(totals) + "</pre></div>\n");
  }
  if (!trainium_rows(studies).empty()) out += section("Beside the Trainium study", trainium_section(studies));
  out += section("Ceilings", ceilings_table(studies));
  out += section("Refused", refused_table(studies));
  out += section(studies.machines.size() > 1 ? "Machines" : "Machine", machine_tables(studies));
  out += "</main>\n";
  out += "<script type=\"application/json\" id=\"data\">" + script_json(page_data(studies)) + "</script>\n";
  out += "<script>" + std::string(kPageScript) + "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace gable::bench::report
