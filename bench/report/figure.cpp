// Lays out the figure in this order: ranges (figure_axes.h), roofs (figure_roofs.h), points and the labels around all
// of these (figure_points.h), the legend below.
#include "bench/report/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/common/text.h"
#include "bench/report/figure_axes.h"
#include "bench/report/figure_points.h"
#include "bench/report/figure_roofs.h"
#include "bench/report/roofs.h"

namespace gable::bench::report {
namespace {

constexpr size_t kPanelsInLine = 2;

struct Sizes {
  double plot_width, plot_height, left, right, top, bottom, between;
};
constexpr Sizes kOneWide = {800, 520, 62, 30, 44, 46, 0};
constexpr Sizes kTwoWide = {440, 410, 58, 30, 44, 46, 18};
constexpr Sizes kNarrow = {302, 330, 46, 12, 40, 42, 14};

// What all panels of a figure share.
struct PanelStyle {
  const std::vector<RoofGroup>& groups;
  Sizes sizes;
  Ranges ranges;
  double right;  // margin of a wide panel, for the names of its roofs
  FigureSize size;
  bool numbered;  // labels are numbers, even where names would have room
};

Panel lay_out_panel(const Studies& studies, const RoofGroup& group, Pixel corner, const PanelStyle& style) {
  const Sizes& sizes = style.sizes;
  const bool wide = style.size == FigureSize::wide;
  Panel panel;
  panel.gpu = group.kind == DeviceKind::gpu;
  panel.title = panel.gpu ? "GPU" : "CPU";
  const double right = wide ? style.right : sizes.right;
  panel.frame = {corner.x, corner.y, corner.x + sizes.left + sizes.plot_width + right,
                 corner.y + sizes.top + sizes.plot_height + sizes.bottom};
  panel.plot = {corner.x + sizes.left, corner.y + sizes.top, corner.x + sizes.left + sizes.plot_width,
                corner.y + sizes.top + sizes.plot_height};
  panel.subtitle = fit_text(title_of(group, style.groups, studies), kFonts.subtitle,
                            panel.frame.width() - sizes.left - text_width(panel.title, kFonts.panel, true) - 14);
  panel.x_ticks = ticks_of(style.ranges.x, panel.plot.x0, panel.plot.x1, tick_text);
  panel.y_ticks = ticks_of(style.ranges.y, panel.plot.y1, panel.plot.y0, flops_tick);
  const PanelRoof roof = {group, {style.ranges.x, style.ranges.y, panel.plot}};

  const auto named = add_ceilings(panel, roof);
  const std::vector<std::string> series = series_of(studies);
  for (const size_t i : group.measurements) panel.markers.push_back(marker_of(studies, i, series, roof.scale));
  name_diagonals(panel, roof, style.size);
  wide ? name_ceilings_in_margin(panel, named) : name_ceilings_inside(panel, named);
  label_panel(panel, studies, style.numbered);
  return panel;
}

// Places rows of entries from left to right. Returns the y below the last row.
double lay_out_legend(Figure& figure, const Studies& studies, double x0, double y) {
  auto row = [&](const std::vector<LegendEntry>& entries) {
    double x = x0;
    for (LegendEntry entry : entries) {
      const double width = 16 + text_width(entry.text, kFonts.legend) + 22;
      if (x > x0 && x + width > figure.width - 8) x = x0, y += 18;
      entry.at = {x + 6, y};
      figure.legend.push_back(entry);
      x += width;
    }
    if (!entries.empty()) y += 18;
  };
  std::vector<LegendEntry> dtypes, devices, caches;
  for (const std::string& one : precisions_of(studies)) dtypes.push_back({.text = one, .precision = one});
  const std::vector<std::string> series = series_of(studies);
  for (size_t i = 0; i < series.size(); ++i) devices.push_back({.text = printable(series[i]), .shape = i});
  std::set<std::string> used;
  for (const Measurement& m : studies.measurements) used.insert(m.place.cache);
  if (used.size() > 1) {
    caches = {{.text = "filled: warm cache"}, {.text = "hollow: cold cache", .filled = false}};
  } else if (!used.empty()) {
    caches = {{.text = *used.begin() + " cache", .filled = *used.begin() == "warm"}};
  }
  dtypes.insert(dtypes.end(), caches.begin(), caches.end());
  std::set<std::string> sources;
  for (const Measurement& m : studies.measurements) sources.insert(source_of(m));
  for (const std::string& source : sources) dtypes.push_back({.text = source + " Q", .source = source});
  const auto drawn_flag = [](const Measurement& m) { return m.flagged() && m.can_be_drawn(); };
  if (std::any_of(studies.measurements.begin(), studies.measurements.end(), drawn_flag)) {
    dtypes.push_back({.text = "ringed: flagged, see the table", .flagged = true});
  }
  row(devices);
  row(dtypes);
  return y;
}

double lay_out_key(Figure& figure, const Studies& studies, double x0, double y) {
  const std::vector<std::string> names = key_of(studies);
  double widest = 0;
  for (const std::string& name : names) widest = std::max(widest, text_width(printable(name), kFonts.legend));
  const double room = figure.width - x0 - 8;
  const double column = std::min(widest + 44, room);
  const auto columns = static_cast<size_t>(std::max(1.0, std::floor(room / column)));
  const size_t rows = (names.size() + columns - 1) / columns;
  for (size_t i = 0; i < names.size(); ++i) {
    const size_t column_index = i / rows, row_index = i % rows;
    const Pixel at = {x0 + column * static_cast<double>(column_index), y + 16 * static_cast<double>(row_index)};
    figure.key.push_back({static_cast<int>(i) + 1, fit_text(printable(names[i]), kFonts.legend, column - 34), at});
  }
  return y + 16 * static_cast<double>(rows) + 6;
}

std::string day_of(const std::string& iso_date) { return printable(iso_date.substr(0, iso_date.find('T'))); }

std::string note_of(const Studies& studies, const std::vector<Panel>& panels) {
  size_t without_work = 0, unlabelled = 0;
  for (const Measurement& m : studies.measurements) without_work += m.can_be_drawn() ? 0 : 1;
  for (const Panel& panel : panels) unlabelled += panel.unlabelled;
  std::vector<std::string> parts = {"bars: quartiles of the runs"};
  if (without_work) parts.push_back(fmt::format("{} without FLOP: in the table only", without_work));
  if (unlabelled) parts.push_back(fmt::format("{} points too crowded to name: see the table", unlabelled));
  if (!studies.refused.empty()) parts.push_back(fmt::format("{} refused", studies.refused.size()));
  return fmt::format("{}", fmt::join(parts, " · "));
}

}  // namespace

std::vector<std::string> subtitle_of(const Studies& studies) {
  std::vector<std::string> lines;
  for (const Machine& machine : studies.machines) {
    std::string line = machine.tag.empty() ? "" : machine.tag + ": ";
    line += printable(machine.cpu);
    if (!machine.apart.empty()) line += " (" + machine.apart + ")";
    if (!machine.gpu.empty()) line += " · " + printable(machine.gpu);
    line += " · " + threads_text(machine.threads) + " · " + day_of(machine.date);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> series_of(const Studies& studies) {
  std::vector<std::string> series;
  for (const Measurement& m : studies.measurements) {
    if (std::find(series.begin(), series.end(), m.series) == series.end()) series.push_back(m.series);
  }
  return series;
}

std::vector<std::string> precisions_of(const Studies& studies) {
  std::vector<std::string> precisions;
  for (const char* known : {"f64", "f32", "tf32", "split3", "split6", "bf16", "f16", "i8"}) {
    const auto has = [&](const Measurement& m) { return precision_of(m) == known; };
    if (std::any_of(studies.measurements.begin(), studies.measurements.end(), has)) precisions.emplace_back(known);
  }
  return precisions;
}

std::string level_name(const Ceiling& bandwidth) {
  return bandwidth.on_gpu() && bandwidth.level == "l1" ? "SHARED" : level_text(bandwidth.level);
}

Figure lay_out(const Studies& studies, FigureSize size) {
  Figure figure;
  const std::vector<RoofGroup> groups = roof_groups(studies);
  figure.title = figure_title(groups);
  figure.subtitle = subtitle_of(studies);
  const bool wide = size == FigureSize::wide;
  const Sizes& sizes = !wide ? kNarrow : groups.size() > 1 ? kTwoWide : kOneWide;

  const size_t in_line = wide ? kPanelsInLine : 1;
  const std::vector<Ranges> ranges = ranges_of(studies, groups, in_line);
  std::vector<double> margins(in_line, sizes.right);  // of the columns
  for (size_t i = 0; i < groups.size(); ++i)
    margins[i % in_line] = std::max(margins[i % in_line], margin_of(groups[i]));

  // The narrow figure has no title: the page around it has one.
  const double top = wide ? 44 + 16 * static_cast<double>(figure.subtitle.size()) : 0;
  Pixel corner;  // of the place after the last panel
  auto lay_out_panels = [&](bool numbered) {
    figure.panels.clear();
    figure.width = figure.height = 0;
    corner = {0, top};
    double line_bottom = top;
    for (size_t i = 0; i < groups.size(); ++i) {
      const Panel panel =
          lay_out_panel(studies, groups[i], corner, {groups, sizes, ranges[i], margins[i % in_line], size, numbered});
      line_bottom = std::max(line_bottom, panel.frame.y1);
      const bool line_ends = i % in_line == in_line - 1;
      corner = line_ends ? Pixel{0, line_bottom + sizes.between} : Pixel{panel.frame.x1 + sizes.between, corner.y};
      figure.width = std::max(figure.width, panel.frame.x1);
      figure.height = std::max(figure.height, panel.frame.y1);
      figure.panels.push_back(panel);
    }
    return std::any_of(figure.panels.begin(), figure.panels.end(), [](const Panel& p) { return p.numbered; });
  };
  // All panels share one key: if one of them has numbers, all have.
  const bool numbered = lay_out_panels(!wide);
  if (numbered && wide) lay_out_panels(true);
  const double left = wide ? sizes.left : 12;
  // An empty place in the last line has room for the legend.
  const bool beside = groups.size() > in_line && groups.size() % in_line != 0;
  const Pixel legend_at = beside ? Pixel{corner.x + left, corner.y + sizes.top + 6} : Pixel{left, figure.height + 16};
  double below = lay_out_legend(figure, studies, legend_at.x, legend_at.y);
  if (numbered) below = lay_out_key(figure, studies, legend_at.x, below + 4);
  if (beside) below = std::max(below, figure.height);
  figure.note = fit_text(note_of(studies, figure.panels), kFonts.tick, figure.width - left - 4);
  figure.note_at = {left, below + 8};
  figure.height = below + 20;
  return figure;
}

}  // namespace gable::bench::report
