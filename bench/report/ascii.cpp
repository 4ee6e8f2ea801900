// See ascii.h. The roofs are those that the rows' verdicts used (Verdict::limits).
#include "bench/report/ascii.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/common/text.h"
#include "bench/record/headroom.h"

namespace gable::bench::report {
namespace {

constexpr int kMargin = 9;  // for the numbers of the vertical axis
constexpr char kMany = '*';

/// Points that share roofs: of one machine, kind of device and number of threads that they ran on.
struct TextPanel {
  std::string title;
  std::vector<const Measurement*> points{};
  std::vector<RoofLimit> roofs{};  ///< each once
  bool has_ceilings = false;
};

bool same_roof(const RoofLimit& a, const RoofLimit& b) {
  return a.bound == b.bound && a.roof == b.roof && a.value == b.value;
}

std::string cpu_of(const Machine& machine) {
  return machine.apart.empty() ? machine.cpu : fmt::format("{} ({})", machine.cpu, machine.apart);
}

std::vector<TextPanel> panels_of(const Studies& studies) {
  std::vector<TextPanel> panels;
  for (const Measurement& m : studies.measurements) {
    if (!m.can_be_drawn()) continue;
    const Machine& machine = studies.machines[m.machine];
    const std::string threads = m.place.threads ? ", " + threads_text(*m.place.running_threads()) : "";
    const std::string title = fmt::format("{} {}{}", machine.tag, m.on_gpu() ? machine.gpu : cpu_of(machine), threads);
    auto panel = std::find_if(panels.begin(), panels.end(), [&](const TextPanel& one) { return one.title == title; });
    if (panel == panels.end()) panel = panels.insert(panels.end(), {.title = title});
    for (const Ceiling& ceiling : studies.ceilings) {
      if (studies.machines[ceiling.machine].tag == machine.tag && ceiling.device_kind == m.place.kind)
        panel->has_ceilings = true;
    }
    panel->points.push_back(&m);
    for (const RoofLimit& limit : m.verdict.limits) {
      if (std::none_of(panel->roofs.begin(), panel->roofs.end(), [&](const auto& r) { return same_roof(r, limit); }))
        panel->roofs.push_back(limit);
    }
  }
  return panels;
}

/// A logarithmic axis of `cells` cells.
struct Axis {
  double low = 0, high = 1;  ///< decimal logarithms
  int cells = 1;

  int cell(double value) const {
    return static_cast<int>(std::floor((std::log10(value) - low) / (high - low) * (cells - 1) + 0.5));
  }
  double value(int cell) const { return std::pow(10, low + (high - low) * cell / (cells - 1)); }
};

Axis axis_of(const std::vector<double>& values, int cells) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {std::log10(*low) - 0.2, std::log10(*high) + 0.2, cells};
}

/// FLOP/s under a roof at an intensity.
double height(const RoofLimit& roof, double intensity) {
  return roof.bound == "compute" ? roof.value : roof.value * intensity;
}

class Grid {
 public:
  Grid(Axis x, Axis y) : x_(x), y_(y), lines_(static_cast<std::size_t>(y.cells), std::string(x.cells, ' ')) {}

  void put(int column, int row, char mark) {
    if (column < 0 || column >= x_.cells || row < 0 || row >= y_.cells) return;
    lines_[static_cast<std::size_t>(y_.cells - 1 - row)][static_cast<std::size_t>(column)] = mark;
  }
  char at(int column, int row) const {
    return lines_[static_cast<std::size_t>(y_.cells - 1 - row)][static_cast<std::size_t>(column)];
  }

  /// Memory roofs end where they meet the highest compute roof.
  void draw(const RoofLimit& roof, double highest) {
    for (int column = 0; column < x_.cells; ++column) {
      const double flops = height(roof, x_.value(column));
      if (roof.bound != "compute" && flops > highest) break;
      put(column, y_.cell(flops), roof.bound == "compute" ? '-' : '/');
    }
  }

  void draw(const Measurement& m, char mark) {
    const int column = x_.cell(m.intensity()), row = y_.cell(m.flops());
    if (column < 0 || column >= x_.cells || row < 0 || row >= y_.cells) return;
    const char there = at(column, row);
    put(column, row, there == ' ' || there == '-' || there == '/' || there == mark ? mark : kMany);
  }

  std::string text() const {
    std::string all;
    for (int i = 0; i < y_.cells; ++i) {
      const bool labelled = i % 4 == 0 || i == y_.cells - 1;
      const std::string label = labelled ? number_text(y_.value(y_.cells - 1 - i) / 1e9) : "";
      all += fmt::format("{:>{}} |{}\n", label, kMargin, lines_[static_cast<std::size_t>(i)]);
    }
    all += std::string(kMargin + 1, ' ') + "+" + std::string(static_cast<std::size_t>(x_.cells), '-') + "\n";
    std::string ticks(static_cast<std::size_t>(x_.cells), ' ');
    for (int column = 0; column + 6 < x_.cells; column += 16)
      ticks.replace(static_cast<std::size_t>(column), number_text(x_.value(column)).size(),
                    number_text(x_.value(column)));
    ticks.erase(ticks.find_last_not_of(' ') + 1);
    return all + std::string(kMargin + 2, ' ') + ticks + "  FLOP/byte\n";
  }

 private:
  Axis x_, y_;
  std::vector<std::string> lines_;
};

char mark_of(std::size_t index) {
  constexpr std::string_view kMarks = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return index < kMarks.size() ? kMarks[index] : '#';
}

std::string text_of(const TextPanel& panel, const AsciiSize& size) {
  std::vector<double> intensities, rates;
  double highest = 0;
  for (const Measurement* m : panel.points) {
    intensities.push_back(m->intensity());
    rates.push_back(m->flops());
  }
  for (const RoofLimit& roof : panel.roofs) {
    if (roof.bound == "compute") highest = std::max(highest, roof.value);
  }
  if (highest > 0) rates.push_back(highest);
  if (highest <= 0) highest = HUGE_VAL;
  for (const RoofLimit& roof : panel.roofs) {  // the ridge
    if (roof.bound != "compute" && highest < HUGE_VAL) intensities.push_back(highest / roof.value);
  }
  Grid grid(axis_of(intensities, std::max(20, size.columns - kMargin - 2)), axis_of(rates, std::max(8, size.rows)));
  for (const RoofLimit& roof : panel.roofs) grid.draw(roof, highest);
  std::map<std::string, std::size_t> marks;  // of a label and dtype on a device
  std::string legend;
  for (const Measurement* m : panel.points) {
    const std::string name =
        fmt::format("{} {} {} {}", printable(m->label), m->identity.dtype, m->place.cache, printable(m->series));
    const std::size_t index = marks.emplace(name, marks.size()).first->second;
    grid.draw(*m, mark_of(index));
    legend += fmt::format("  {} {}: {}", mark_of(index), name, flops_text(m->flops()));
    const std::string headroom = headroom_text(m->verdict);
    if (!headroom.empty()) legend += ", " + printable(headroom);
    legend += m->flagged() ? " (!)\n" : "\n";
  }
  std::string roofs;
  for (const RoofLimit& roof : panel.roofs) {
    roofs += fmt::format("  {} {}: {}\n", roof.bound == "compute" ? '-' : '/', printable(roof.roof),
                         roof.bound == "compute" ? flops_text(roof.value) : bandwidth_text(roof.value));
  }
  const std::string drawn = grid.text();
  if (drawn.find(kMany) != std::string::npos) legend += fmt::format("  {} several rows in one place\n", kMany);
  if (std::any_of(panel.points.begin(), panel.points.end(), [](const Measurement* m) { return m->flagged(); }))
    legend += "  (!) flagged: `gable plot --out DIR` says why\n";
  const char* kind = "";
  if (panel.roofs.empty())
    kind = panel.has_ceilings ? " (these rows do not name their roofs: `gable plot --out DIR` draws them)"
                              : " (no ceilings in this study: no roofline)";
  return fmt::format("{}{}\n{:>{}}\n", printable(panel.title), kind, "GFLOP/s", kMargin) + drawn + roofs + legend;
}

}  // namespace

std::string ascii_plot(const Studies& studies, const AsciiSize& size) {
  std::string text;
  for (const TextPanel& panel : panels_of(studies)) text += (text.empty() ? "" : "\n") + text_of(panel, size);
  return text.empty() ? "nothing to draw: no row has both work and traffic\n" : text;
}

}  // namespace gable::bench::report
