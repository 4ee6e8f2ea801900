// See figure_roofs.h.
#include "bench/report/figure_roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "bench/common/text.h"
#include "bench/report/box_grid.h"

namespace gable::bench::report {
namespace {

constexpr double kMarginGap = 16;  // between the plot and the names of its ceilings

std::vector<Box> boxes_along(Pixel start, double degrees, double width, double height) {
  const double radians = degrees * std::acos(-1.0) / 180;
  const int pieces = std::max(1, static_cast<int>(std::ceil(width / 8)));
  std::vector<Box> boxes;
  for (int i = 0; i < pieces; ++i) {
    const double along = width * (i + 0.5) / pieces;
    const Pixel middle = {start.x + std::cos(radians) * along + std::sin(radians) * height * 0.35,
                          start.y + std::sin(radians) * along - std::cos(radians) * height * 0.35};
    boxes.push_back(box_around(middle, width / pieces + 3, height));
  }
  return boxes;
}

bool hits(const std::vector<Box>& boxes, const std::vector<Box>& others) {
  for (const Box& a : boxes) {
    for (const Box& b : others) {
      if (a.overlaps(b)) return true;
    }
  }
  return false;
}

// The panel's title has the threads already.
std::string without_threads(const std::string& name, int threads) {
  const std::string end = ", " + threads_text(threads);
  return threads > 0 && name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

std::string ceiling_text(const Ceiling& c, const RoofGroup& group) {
  return fmt::format("{} · {}", printable(without_threads(c.name, group.threads)), flops_text(c.limit.value));
}

// Writes a text along a diagonal, above or below it, at the first place from the left where it covers none of
// `others`. False if there is no such place.
bool name_diagonal(Panel& panel, const Segment& line, const std::string& text, BoxGrid& others) {
  const double run = line.b.x - line.a.x, rise = line.b.y - line.a.y;
  const double total = length(line);
  const double width = text_width(text, kFonts.roof), height = text_height(kFonts.roof);
  const double degrees = std::atan2(rise, run) * 180 / std::acos(-1.0);
  for (const double above : {4.0, -kFonts.roof * 0.75 - 4}) {  // height of the text's baseline above the line
    for (double along = 6; along + width + 4 < total; along += 6) {
      const double share = along / total;
      const Pixel on_line = {line.a.x + run * share, line.a.y + rise * share};
      const Pixel at = {on_line.x + rise / total * above, on_line.y - run / total * above};
      const std::vector<Box> boxes = boxes_along(at, degrees, width, height);
      const bool inside = std::all_of(boxes.begin(), boxes.end(), [&](const Box& b) { return panel.plot.contains(b); });
      const auto taken = [&](const Box& box) { return others.overlaps(box); };
      if (!inside || std::any_of(boxes.begin(), boxes.end(), taken)) continue;
      panel.roof_texts.push_back({text, at, degrees, kFonts.roof, "", false, {}, false, boxes});
      return true;
    }
  }
  return false;
}

// Boxes along the strong roofs that texts should not cross: the flat ones, or all diagonals except `own`.
std::vector<Box> strong_roofs(const Panel& panel, const Segment& own, bool flat) {
  constexpr double kPiece = 4;
  std::vector<Box> boxes;
  for (const RoofLine& roof : panel.roofs) {
    const Segment& line = roof.line;
    const bool is_own = line.a.x == own.a.x && line.a.y == own.a.y && line.b.x == own.b.x && line.b.y == own.b.y;
    if (!roof.strong || is_own || flat != (line.a.y == line.b.y)) continue;
    if (flat) {
      boxes.push_back(Box{line.a.x, line.a.y, line.b.x, line.b.y}.grown(3));
      continue;
    }
    const double pieces = std::ceil(length(line) / kPiece);
    for (double i = 0.5; i < pieces; ++i) {
      const double share = i / pieces;
      const Pixel at = {line.a.x + (line.b.x - line.a.x) * share, line.a.y + (line.b.y - line.a.y) * share};
      boxes.push_back(box_around(at, kPiece, kPiece));
    }
  }
  return boxes;
}

// A bandwidth's line from the left edge of the plot to its ridge point with the highest flat roof; nothing where it
// lies outside the plot.
std::optional<Segment> diagonal_of(const Ceiling& c, const PanelRoof& roof, const Box& plot) {
  const double top = roof.group.best_compute();
  const double low = std::pow(10, roof.scale.x.lo - 1);  // left of the plot; clipped
  const double ridge = top > 0 ? top / c.limit.value : std::pow(10, roof.scale.x.hi + 1);
  Segment line = {roof.scale.at(low, c.limit.value * low), roof.scale.at(ridge, c.limit.value * ridge)};
  if (!clip(line, plot)) return std::nullopt;
  return line;
}

// Marks where the flat roof `c` meets each bandwidth.
void add_ridges(Panel& panel, const PanelRoof& roof, const Ceiling& c) {
  for (const Ceiling& b : roof.group.roofs) {
    if (!b.is_bandwidth()) continue;
    const Pixel ridge = roof.scale.at(c.limit.value / b.limit.value, c.limit.value);
    if (panel.plot.contains({ridge.x, ridge.y, ridge.x, ridge.y})) panel.ridges.push_back({ridge});
  }
}

// `texts` are versions of one name, longest first. Writes the first that crosses no strong roof; if there is none, the
// first that crosses no other diagonal; if there is none, the first that covers no marker and no text.
void name_where_free(Panel& panel, const Segment& line, const std::vector<std::string>& texts) {
  std::vector<Box> others = taken(panel);
  const std::vector<Box> flat = strong_roofs(panel, line, true), steep = strong_roofs(panel, line, false);
  std::vector<Box> diagonals = others, all = others;
  diagonals.insert(diagonals.end(), steep.begin(), steep.end());
  all.insert(all.end(), steep.begin(), steep.end());
  all.insert(all.end(), flat.begin(), flat.end());
  for (const std::vector<Box>* boxes : {&all, &diagonals, &others}) {
    BoxGrid obstacles(panel.plot, *boxes);
    for (const std::string& text : texts) {
      if (name_diagonal(panel, line, text, obstacles)) return;
    }
  }
}

}  // namespace

std::vector<const Ceiling*> best_of_each_dtype(const RoofGroup& group) {
  std::map<std::string, const Ceiling*> best;
  for (const Ceiling& c : group.roofs) {
    if (c.is_bandwidth()) continue;
    const Ceiling*& slot = best[c.dtype];
    if (!slot || c.limit.value > slot->limit.value) slot = &c;
  }
  std::vector<const Ceiling*> strong;
  for (const auto& [key, c] : best) strong.push_back(c);
  return strong;
}

std::vector<Box> taken(const Panel& panel) {
  std::vector<Box> boxes;
  for (const Marker& marker : panel.markers) boxes.push_back(marker.box);
  for (const RoofText& text : panel.roof_texts) boxes.insert(boxes.end(), text.boxes.begin(), text.boxes.end());
  return boxes;
}

NamedRoofs add_ceilings(Panel& panel, const PanelRoof& roof) {
  const std::vector<const Ceiling*> strong = best_of_each_dtype(roof.group);
  const double steepest = roof.group.best_bandwidth();
  NamedRoofs named;
  for (const Ceiling& c : roof.group.roofs) {
    if (c.is_bandwidth()) {
      if (const auto line = diagonal_of(c, roof, panel.plot)) panel.roofs.push_back({*line, "", true});
      continue;
    }
    if (roof.group.has_fused_twin(c)) continue;
    const bool is_strong = std::find(strong.begin(), strong.end(), &c) != strong.end();
    const double from = steepest > 0 ? c.limit.value / steepest : std::pow(10, roof.scale.x.lo - 1);
    RoofLine line = {
        {roof.scale.at(from, c.limit.value), roof.scale.at(std::pow(10, roof.scale.x.hi + 1), c.limit.value)},
        c.dtype,
        is_strong};
    if (!clip(line.line, panel.plot)) continue;
    panel.roofs.push_back(line);
    named.emplace_back(line, ceiling_text(c, roof.group));
    if (is_strong) add_ridges(panel, roof, c);
  }
  return named;
}

void name_diagonals(Panel& panel, const PanelRoof& roof, FigureSize size) {
  const double top = roof.group.best_compute();
  for (const Ceiling& c : roof.group.roofs) {
    if (!c.is_bandwidth()) continue;
    const auto line = diagonal_of(c, roof, panel.plot);
    if (!line) continue;
    const std::string name = level_name(c) + " " + bandwidth_text(c.limit.value);
    std::vector<std::string> texts = {name};
    if (size == FigureSize::wide && c.level == "dram" && top > 0) {
      texts.insert(texts.begin(), fmt::format("{} · ridge {} FLOP/byte", name, number_text(top / c.limit.value)));
    }
    name_where_free(panel, *line, texts);
  }
}

void name_ceilings_in_margin(Panel& panel, NamedRoofs named) {
  std::sort(named.begin(), named.end(),
            [](const auto& a, const auto& b) { return a.first.line.b.y < b.first.line.b.y; });
  const double step = text_height(kFonts.roof) + 1;
  std::vector<double> y;
  for (const auto& [line, text] : named) y.push_back(line.line.b.y);
  for (int pass = 0; pass < 200; ++pass) {
    for (size_t i = 1; i < y.size(); ++i) {
      const double lack = step - (y[i] - y[i - 1]);
      if (lack > 0) y[i - 1] -= lack / 2, y[i] += lack / 2;
    }
    if (!y.empty()) y.front() = std::max(y.front(), panel.plot.y0);
  }
  for (size_t i = 1; i < y.size(); ++i) y[i] = std::max(y[i], y[i - 1] + step);
  for (size_t i = 0; i < named.size(); ++i) {
    const auto& [line, text] = named[i];
    const double x = panel.plot.x1 + kMarginGap;
    const std::string shown = fit_text(text, kFonts.roof, panel.frame.x1 - x - 2);
    const Box box = {x, y[i] - step / 2, x + text_width(shown, kFonts.roof), y[i] + step / 2};
    panel.roof_texts.push_back({shown,
                                {x, y[i] + kFonts.roof * 0.36},
                                0,
                                kFonts.roof,
                                line.strong ? line.dtype : "",
                                false,
                                {{panel.plot.x1 + 2, line.line.b.y}, {x - 3, y[i]}},
                                true,
                                {box}});
  }
}

void name_ceilings_inside(Panel& panel, const NamedRoofs& named) {
  for (const auto& [line, text] : named) {
    if (!line.strong) continue;
    const double width = text_width(text, kFonts.roof);
    for (double x = panel.plot.x1 - 4; x - width > line.line.a.x; x -= 8) {
      const Pixel end = {x, line.line.b.y - 4};
      const Box box = {end.x - width, end.y - kFonts.roof, end.x, end.y + 2};
      if (!panel.plot.contains(box) || hits({box}, taken(panel))) continue;
      panel.roof_texts.push_back({text, end, 0, kFonts.roof, line.dtype, true, {}, false, {box}});
      break;
    }
  }
}

double margin_of(const RoofGroup& group) {
  double widest = 0;
  for (const Ceiling& c : group.roofs) {
    if (!c.is_bandwidth() && !group.has_fused_twin(c)) {
      widest = std::max(widest, text_width(ceiling_text(c, group), kFonts.roof));
    }
  }
  constexpr double kWidest = 240;
  return std::min(widest, kWidest) + kMarginGap + 6;
}

}  // namespace gable::bench::report
