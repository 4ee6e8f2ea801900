// Drawing a Figure as SVG. Colours are named once (kPalette) and rules (rules()) give each class its look. In the page
// the rules are CSS, so that one drawing serves both schemes; a file of its own has them as plain attributes, which
// every renderer understands. The hues are Okabe and Ito's, shifted in lightness until each has a contrast of 3 or
// more.
#include "bench/report/svg.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>
#include <string_view>
#include <vector>

#include "bench/common/text.h"
#include "bench/report/roofs.h"
#include "bench/report/shapes.h"

namespace gable::bench::report {
namespace {

struct Named {
  const char* name;
  const char* light;
  const char* dark;
};
constexpr std::array<Named, 17> kPalette = {{
    {"page", "#ffffff", "#14171c"},
    {"ink", "#1d232b", "#e6e9ee"},
    {"soft", "#5a6472", "#a3adba"},
    {"grid", "#e3e7ec", "#272d36"},
    {"minor", "#f1f3f6", "#1d2229"},
    {"frame", "#b4bcc7", "#49525f"},
    {"roof", "#39424e", "#c3cad4"},
    {"thin", "#98a1ad", "#6d7785"},
    {"f32", "#0068a8", "#58b4f0"},
    {"bf16", "#c24e00", "#f39345"},
    {"f16", "#00805c", "#2fc49a"},
    {"tf32", "#a5458a", "#e096cb"},
    {"split3", "#00727f", "#3cc7d8"},
    {"split6", "#7d4a1e", "#cfa176"},
    {"f64", "#6b5b00", "#e3d350"},
    {"i8", "#5b4bb5", "#a99cf5"},
    {"flag", "#c5162e", "#ff8a94"},
}};
constexpr const char* kFontFamily = "'DejaVu Sans',Verdana,'Bitstream Vera Sans',sans-serif";
constexpr double kRadius = 4.5;
constexpr double kFlagRadius = 8;

// The look of elements that have all of these classes. Later rules and rules of more classes come first.
struct Rule {
  std::string classes;
  std::string properties;  // CSS that is also valid as attributes
};

std::vector<Rule> rules() {
  std::vector<Rule> all = {
      {"page", "fill:var(--page)"},
      {"ink", "fill:var(--ink)"},
      {"soft", "fill:var(--soft)"},
      {"bold", "font-weight:700"},
      {"mid", "text-anchor:middle"},
      {"end", "text-anchor:end"},
      {"halo", "paint-order:stroke;stroke:var(--page);stroke-width:3;stroke-linejoin:round"},
      {"grid", "stroke:var(--grid);stroke-width:1"},
      {"minor", "stroke:var(--minor);stroke-width:1"},
      {"frame", "fill:none;stroke:var(--frame);stroke-width:1"},
      {"roof", "fill:none"},
      {"roof slope", "stroke:var(--roof);stroke-width:1.5"},
      {"roof thin", "stroke:var(--thin);stroke-width:.8"},
      {"roof top", "stroke-width:2"},
      {"roof c-issue", "stroke:var(--ink)"},
      {"t-issue", "fill:var(--ink)"},
      {"wall", "stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3"},
      {"ridge", "fill:var(--page);stroke:var(--roof);stroke-width:1"},
      {"leader", "stroke:var(--thin);stroke-width:.7"},
      {"stem", "stroke:var(--thin);stroke-width:.8;stroke-dasharray:1.5 2.5"},
      {"flag", "fill:none;stroke:var(--flag);stroke-width:1.6"},
      {"bar", "stroke-width:1.1"},
      {"mark", "stroke-width:1.3"},
      {"target", "fill:transparent;stroke:none"},
      {"mark c-ink", "fill:var(--soft);stroke:var(--soft)"},
      {"mark counter", "stroke-width:.8"},
      {"mark analytic", "fill-opacity:.4;stroke-width:1.2"},
      {"mark simulated", "fill-opacity:.4;stroke-width:1.4;stroke-dasharray:2 1.4"},
      {"glyph", "fill:none;stroke-width:1.2;stroke-linecap:round"},
      {"bound", "fill:var(--page);stroke-width:1.1"},
      {"bound reach", "stroke-dasharray:1 2"},
      {"mark hollow", "stroke-width:1.7"},
      {"mark hollow analytic", "stroke-width:1.3"},
      {"mark hollow c-ink", "fill:var(--page);fill-opacity:1"},
  };
  for (const std::string precision : {"f64", "f32", "tf32", "split3", "split6", "bf16", "f16", "i8"}) {
    const std::string colour = "var(--" + precision + ")";
    for (const char* stroked : {"bar", "roof", "glyph", "bound"}) {
      all.push_back({fmt::format("{} c-{}", stroked, precision), "stroke:" + colour});
    }
    all.push_back({"mark c-" + precision, fmt::format("fill:{0};stroke:{0}", colour)});
    all.push_back({"mark counter c-" + precision, "stroke:var(--page)"});
    all.push_back({"glyph counter c-" + precision, "stroke:var(--page)"});
    all.push_back({"mark hollow c-" + precision, fmt::format("fill:var(--page);fill-opacity:1;stroke:{}", colour)});
    all.push_back({"glyph hollow c-" + precision, "stroke:" + colour});
    all.push_back({"t-" + precision, "fill:" + colour});
  }
  return all;
}

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

std::string light_colour(const std::string& value) {
  for (const Named& colour : kPalette) {
    if (value == fmt::format("var(--{})", colour.name)) return colour.light;
  }
  return value;
}

// ` fill="#1d232b" text-anchor="end"` for "ink end": what the rules say of these classes.
std::string attributes_of(const std::string& classes) {
  const std::vector<std::string> has = words_of(classes, ' ');
  std::map<std::string, std::pair<size_t, std::string>> properties;  // name: number of the rule's classes, value
  for (const Rule& rule : rules()) {
    const std::vector<std::string> needs = words_of(rule.classes, ' ');
    const auto is_there = [&](const std::string& one) { return std::find(has.begin(), has.end(), one) != has.end(); };
    if (!std::all_of(needs.begin(), needs.end(), is_there)) continue;
    for (const std::string& property : words_of(rule.properties, ';')) {
      const size_t colon = property.find(':');
      auto& [rank, value] = properties[property.substr(0, colon)];
      if (needs.size() >= rank) rank = needs.size(), value = light_colour(property.substr(colon + 1));
    }
  }
  std::string text;
  for (const auto& [name, of] : properties) text += fmt::format(" {}=\"{}\"", name, of.second);
  return text;
}

// Markup with attributes in place of its classes. No text of a study can look like a class: its quotes are escaped.
class PlainMarkup {
 public:
  std::string operator()(const std::string& markup) {
    std::string out;
    size_t done = 0;
    constexpr std::string_view kClass = " class=\"";
    for (size_t at = markup.find(kClass); at != std::string::npos; at = markup.find(kClass, done)) {
      const size_t begin = at + kClass.size(), end = markup.find('"', begin);
      const std::string classes = markup.substr(begin, end - begin);
      out += markup.substr(done, at - done);
      if (classes.ends_with(" halo")) {
        // Office programs know no paint-order: the halo is a text of its own below the text.
        const size_t after = markup.find("</text>", end) + 7;
        out += " aria-hidden=\"true\"" + known(classes) + markup.substr(end + 1, after - end - 1) + "<text" +
               known(classes.substr(0, classes.size() - 5));
      } else {
        out += known(classes);
      }
      done = end + 1;
    }
    return out + markup.substr(done);
  }

 private:
  const std::string& known(const std::string& classes) {
    const auto [it, is_new] = known_.try_emplace(classes);
    if (is_new) it->second = attributes_of(classes);
    return it->second;
  }
  std::map<std::string, std::string> known_;
};

struct MarkLook {
  size_t shape = 0;
  const std::string &precision, &source;
  bool filled = true;
};

// The outline of the series and the glyph of the precision, around the origin in pixels.
std::string mark(const MarkLook& look) {
  const std::string classes = fmt::format("{}{} c-{}", look.filled ? "" : "hollow ", look.source,
                                          look.precision.empty() ? "ink" : look.precision);
  std::string out =
      fmt::format(R"(<path class="mark {}" d="{}"/>)", classes, scaled_path(shape_path(look.shape), kRadius));
  const std::string glyph = glyph_path(look.precision);
  if (!glyph.empty()) out += fmt::format(R"(<path class="glyph {}" d="{}"/>)", classes, scaled_path(glyph, kRadius));
  return out;
}

std::string mark_at(Pixel at, const MarkLook& look) {
  return fmt::format(R"x(<g transform="translate({:.2f} {:.2f})">{}</g>)x", at.x, at.y, mark(look));
}

// Around the marker of a row that breaks a consistency rule.
std::string flag_ring(Pixel at) {
  return fmt::format(R"(<circle class="flag" cx="{:.2f}" cy="{:.2f}" r="{}"/>)", at.x, at.y, kFlagRadius);
}

std::string line(const Segment& s, const std::string& classes, const std::string& more = "") {
  return fmt::format(R"(<line class="{}" x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"{}/>)", classes, s.a.x, s.a.y,
                     s.b.x, s.b.y, more);
}

std::string text(Pixel at, const std::string& classes, double size, const std::string& content,
                 const std::string& more = "") {
  return fmt::format(R"(<text class="{}" x="{:.2f}" y="{:.2f}" font-size="{}"{}>{}</text>)", classes, at.x, at.y, size,
                     more, escape_markup(content));
}

std::string rotated(double degrees, Pixel about) {
  return fmt::format(" transform=\"rotate({:.2f} {:.2f} {:.2f})\"", degrees, about.x, about.y);
}

std::string grid(const Panel& panel) {
  std::string out;
  const Box& p = panel.plot;
  for (const bool named : {false, true}) {
    for (const Tick& t : panel.x_ticks) {
      if (t.text.empty() != named) out += line({{t.at, p.y0}, {t.at, p.y1}}, named ? "grid" : "minor") + "\n";
    }
    for (const Tick& t : panel.y_ticks) {
      if (t.text.empty() != named) out += line({{p.x0, t.at}, {p.x1, t.at}}, named ? "grid" : "minor") + "\n";
    }
  }
  out += fmt::format(R"(<rect class="frame" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>)", p.x0, p.y0,
                     p.width(), p.height()) +
         "\n";
  return out;
}

std::string axes(const Panel& panel) {
  std::string out;
  const Box& p = panel.plot;
  for (const Tick& t : panel.x_ticks) {
    if (!t.text.empty()) out += text({t.at, p.y1 + 15}, "soft mid", kFonts.tick, t.text) + "\n";
  }
  for (const Tick& t : panel.y_ticks) {
    if (!t.text.empty()) out += text({p.x0 - 6, t.at + 3.8}, "soft end", kFonts.tick, t.text) + "\n";
  }
  out += text({(p.x0 + p.x1) / 2, p.y1 + 34}, "ink mid", kFonts.axis, "intensity, FLOP/byte (DRAM)") + "\n";
  const Pixel y_name = {panel.frame.x0 + 13, (p.y0 + p.y1) / 2};
  out += text(y_name, "ink mid", kFonts.axis, "performance, FLOP/s", rotated(-90, y_name)) + "\n";
  return out;
}

std::string roofs(const Panel& panel) {
  std::string out;
  for (const bool strong : {false, true}) {
    for (const RoofLine& roof : panel.roofs) {
      if (roof.strong != strong) continue;
      std::string classes = !strong ? "roof thin" : roof.dtype.empty() ? "roof slope" : "roof top c-" + roof.dtype;
      out += line(roof.line, classes) + "\n";
    }
  }
  for (const Ridge& ridge : panel.ridges) {
    out += fmt::format(R"(<circle class="ridge" cx="{:.2f}" cy="{:.2f}" r="2.2"/>)", ridge.at.x, ridge.at.y) + "\n";
  }
  return out;
}

std::string roof_texts(const Panel& panel) {
  std::string out;
  for (const RoofText& t : panel.roof_texts) {
    if (t.has_leader) out += line(t.leader, "leader") + "\n";
    const std::string turned = t.degrees == 0 ? "" : rotated(t.degrees, t.at);
    const std::string colour = t.dtype.empty() ? "soft" : "t-" + t.dtype;
    const bool in_plot = !t.has_leader;
    out += text(t.at, colour + (t.at_end ? " end" : "") + (in_plot ? " halo" : ""), t.size, t.text, turned) + "\n";
  }
  return out;
}

std::string bars(const Marker& m) {
  std::string out;
  constexpr double kCap = 2.5;
  const std::string classes = "bar c-" + m.precision;
  if (m.y_lo - m.y_hi > 1) {
    out += line({{m.center.x, m.y_lo}, {m.center.x, m.y_hi}}, classes);
    out += line({{m.center.x - kCap, m.y_lo}, {m.center.x + kCap, m.y_lo}}, classes);
    out += line({{m.center.x - kCap, m.y_hi}, {m.center.x + kCap, m.y_hi}}, classes);
  }
  if (m.has_x_bar && m.x_hi - m.x_lo > 1) {
    out += line({{m.x_lo, m.center.y}, {m.x_hi, m.center.y}}, classes);
    out += line({{m.x_lo, m.center.y - kCap}, {m.x_lo, m.center.y + kCap}}, classes);
    out += line({{m.x_hi, m.center.y - kCap}, {m.x_hi, m.center.y + kCap}}, classes);
  }
  return out;
}

std::string summary(const Measurement& m) {
  std::string words =
      fmt::format("{}, {}, {}, {} cache: {} at {} FLOP/byte, {}", m.label, m.series, m.identity.dtype, m.place.cache,
                  flops_text(m.flops()), number_text(m.intensity()), seconds_text(m.time.seconds));
  if (m.verdict.percent_of_roof) words += fmt::format(", {:.1f} % of roof", *m.verdict.percent_of_roof);
  if (!m.verdict.bound.empty()) words += ", bound by " + m.verdict.bound;
  if (!m.verdict.roof.empty()) words += " (" + m.verdict.roof + ")";
  for (const std::string& flag : m.verdict.flags) words += "; flagged: " + flag;
  return words;
}

// Where the row stands at the level of memory that bounds it, if that is not DRAM.
std::string bound_mark(const Marker& m) {
  if (m.bound_x == m.center.x) return "";
  const std::string classes = "bound c-" + m.precision;
  return line({m.center, {m.bound_x, m.center.y}}, classes + " reach") +
         fmt::format(R"(<circle class="{}" cx="{:.2f}" cy="{:.2f}" r="2.4"/>)", classes, m.bound_x, m.center.y);
}

std::string points(const Panel& panel, const Studies& studies) {
  std::string out;
  for (const Marker& m : panel.markers) {
    out += "<g><title>" + escape_markup(summary(studies.measurements[m.measurement])) + "</title>" +
           (m.flagged ? flag_ring(m.center) : "") + bars(m) + bound_mark(m) +
           mark_at(m.center, {m.shape, m.precision, m.source, m.filled}) + "</g>\n";
  }
  return out;
}

std::string labels(const Panel& panel) {
  std::string out;
  for (const Label& label : panel.labels) {
    out += "<g>";
    if (label.has_leader) out += line(label.leader, "leader");
    const Pixel at = {label.box.x0 + 1, label.box.y1 - 0.3 * kFonts.label};
    out += text(at, "ink halo", kFonts.label, label.text) + "</g>\n";
  }
  return out;
}

std::string panel_markup(const Panel& panel, const Studies& studies) {
  std::string out = "<g>\n";
  const double title_y = panel.plot.y0 - 14;
  out += text({panel.plot.x0, title_y}, "ink bold", kFonts.panel, panel.title) + "\n";
  out += text({panel.plot.x0 + text_width(panel.title, kFonts.panel, true) + 10, title_y}, "soft", kFonts.subtitle,
              panel.subtitle) +
         "\n";
  out += grid(panel) + axes(panel) + roofs(panel);
  for (const Stem& stem : panel.stems) out += line(stem.line, "stem") + "\n";
  out += roof_texts(panel) + points(panel, studies) + labels(panel);
  return out + "</g>\n";
}

std::string legend(const Figure& figure) {
  std::string out;
  for (const LegendEntry& entry : figure.legend) {
    if (entry.flagged) out += flag_ring(entry.at);
    out += mark_at(entry.at, {entry.shape, entry.precision, entry.source, entry.filled});
    const double gap = entry.flagged ? kFlagRadius + 5 : 10;
    out += text({entry.at.x + gap, entry.at.y + 4}, "ink", kFonts.legend, entry.text) + "\n";
  }
  return out;
}

std::string key(const Figure& figure) {
  std::string out;
  for (const KeyEntry& entry : figure.key) {
    out += text({entry.at.x + 20, entry.at.y + 4}, "ink bold end", kFonts.legend, std::to_string(entry.number));
    out += text({entry.at.x + 26, entry.at.y + 4}, "ink", kFonts.legend, entry.text) + "\n";
  }
  return out;
}

std::string open_svg(const Figure& figure, const std::string& more) {
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" {2} font-family="{3}">)",
                     std::ceil(figure.width), std::ceil(figure.height), more, kFontFamily) +
         "\n";
}

}  // namespace

std::string scheme_properties(bool dark) {
  std::string css;
  for (const Named& colour : kPalette) css += fmt::format("--{}:{};", colour.name, dark ? colour.dark : colour.light);
  return css;
}

std::string figure_rules() {
  std::string css;
  for (const Rule& rule : rules()) {
    css += fmt::format(".{}{{{}}}", fmt::join(words_of(rule.classes, ' '), "."), rule.properties);
  }
  return css;
}

std::string svg(const Studies& studies) {
  const Figure figure = lay_out(studies);
  std::string out = open_svg(figure, fmt::format(R"(width="{:.0f}" height="{:.0f}" role="img" aria-labelledby="title")",
                                                 std::ceil(figure.width), std::ceil(figure.height)));
  out += fmt::format("<title id=\"title\">{}</title>\n", escape_markup(figure.title));
  out += fmt::format(R"(<rect class="page" width="{:.0f}" height="{:.0f}"/>)", std::ceil(figure.width),
                     std::ceil(figure.height)) +
         "\n";
  const double left = figure.panels[0].plot.x0;
  out += text({left, 28}, "ink bold", kFonts.title, figure.title) + "\n";
  for (size_t i = 0; i < figure.subtitle.size(); ++i) {
    const std::string shown = fit_text(figure.subtitle[i], kFonts.subtitle, figure.width - left - 6);
    out += text({left, 47 + 16 * static_cast<double>(i)}, "soft", kFonts.subtitle, shown) + "\n";
  }
  for (const Panel& panel : figure.panels) out += panel_markup(panel, studies);
  out += legend(figure) + key(figure) + text(figure.note_at, "soft", kFonts.tick, figure.note) + "\n";
  return PlainMarkup()(out) + "</svg>\n";
}

std::string inline_svg(const Studies& studies, FigureSize size) {
  Figure figure = lay_out(studies, size);
  // The page has its own title, and its filters replace the legend. The key and the note are drawn.
  const double top = figure.panels[0].frame.y0;
  const bool wide = size == FigureSize::wide;
  const std::string box = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" class="figure {}" viewBox="0 {:.0f} {:.0f} {:.0f}" )"
      R"(role="group" aria-label="roofline" font-family="{}">)",
      wide ? "wide" : "narrow", std::floor(top), std::ceil(figure.width), std::ceil(figure.height - top), kFontFamily);
  std::string out = box + "\n";
  for (const Panel& panel : figure.panels) out += panel_markup(panel, studies);
  out += legend(figure) + key(figure) + text(figure.note_at, "soft", kFonts.tick, figure.note) + "\n";
  return out + "</svg>\n";
}

}  // namespace gable::bench::report
