// Lays out the figure in this order: ranges, roofs, points, labels around all of these, the legend below.
#include "bench/report/figure.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "bench/common/text.h"
#include "bench/report/box_grid.h"
#include "bench/report/labels.h"
#include "bench/report/roofs.h"

namespace gable::bench::report {
namespace {

constexpr double kMarkerRadius = 4.5;
constexpr double kMarginGap = 16;      // between the plot and the names of its ceilings
constexpr size_t kMaxTextLabels = 34;  // a panel with more problems than this is numbered
constexpr size_t kMaxNamed = 240;      // most names in the key, and labels in a panel; the ones that take most time
constexpr double kSameIntensity = 0.02;
constexpr size_t kPanelsInLine = 2;
constexpr double kMeanLeader = 20;  // pixels: if names lie farther from their points on average, numbers replace them

struct Sizes {
  double plot_width, plot_height, left, right, top, bottom, between;
};
constexpr Sizes kOneWide = {800, 520, 62, 30, 44, 46, 0};
constexpr Sizes kTwoWide = {440, 410, 58, 30, 44, 46, 18};
constexpr Sizes kNarrow = {302, 330, 46, 12, 40, 42, 14};

struct Range {
  double lo = 0, hi = 0;  // as powers of ten
};

struct Ranges {
  Range x, y;
};

struct Scale {
  Range x, y;
  Box plot;

  double x_at(double intensity) const {
    return plot.x0 + (std::log10(intensity) - x.lo) / (x.hi - x.lo) * plot.width();
  }
  double y_at(double flops) const { return plot.y1 - (std::log10(flops / 1e9) - y.lo) / (y.hi - y.lo) * plot.height(); }
  Pixel at(double intensity, double flops) const { return {x_at(intensity), y_at(flops)}; }
};

// The ceilings of one panel and the scale that they are drawn on.
struct PanelRoof {
  const RoofGroup& group;
  Scale scale;
};

// What all panels of a figure share.
struct PanelStyle {
  const std::vector<RoofGroup>& groups;
  Sizes sizes;
  Ranges ranges;
  double right;  // margin of a wide panel, for the names of its roofs
  FigureSize size;
  bool numbered;  // labels are numbers, even where names would have room
};

double text_height(double size) { return size * 1.2; }

// The compute roofs that are drawn strongly.
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

// ---- ranges -------------------------------------------------------------------------------------------------------

struct Extent {
  double lo = std::numeric_limits<double>::infinity(), hi = 0;
  void include(double value) {
    if (!(value > 0) || !std::isfinite(value)) return;
    value = std::clamp(value, 1e-60, 1e60);
    lo = std::min(lo, value);
    hi = std::max(hi, value);
  }
  bool empty() const { return hi == 0; }
};

// The extent widened to round numbers, so that an axis ends near a tick.
Range rounded(const Extent& extent, double below, double above) {
  auto step = [](double value, bool up) {
    const double decade = std::floor(std::log10(value));
    const double mantissa = value / std::pow(10, decade);
    constexpr double kSteps[] = {1, 1.5, 2, 3, 5, 7, 10};
    double chosen = up ? 10 : 1;
    for (double s : kSteps) {
      if (up && s >= mantissa * (1 - 1e-9)) {
        chosen = s;
        break;
      }
      if (!up && s <= mantissa * (1 + 1e-9)) chosen = s;
    }
    return decade + std::log10(chosen);
  };
  if (extent.empty()) return {-1, 3};
  return {step(extent.lo / below, false), step(extent.hi * above, true)};
}

// The intensity at the level that bounds the row, where that is not DRAM's; 0 where it is.
double other_intensity(const Measurement& m) {
  constexpr std::string_view kMemory = "memory:";
  if (!m.verdict.bound.starts_with(kMemory)) return 0;
  const auto level = m.traffic.find(m.verdict.bound.substr(kMemory.size()));
  if (level == m.traffic.end() || level->first == "dram") return 0;
  const double intensity = m.work.value / level->second.value;
  return std::abs(intensity / m.intensity() - 1) < kSameIntensity ? 0 : intensity;
}

// The axes show all points, the ridge of DRAM and the highest roof of each precision. Other roofs give way to the
// points.
void include_group(const RoofGroup& group, const Studies& studies, Extent& x, Extent& y) {
  const double top = group.best_compute();
  for (const Ceiling& c : group.roofs) {
    const bool is_far = !c.is_bandwidth() || c.level == "dram" || group.measurements.empty();
    if (c.is_bandwidth() && is_far && top > 0) x.include(top / c.limit.value);
  }
  for (const Ceiling* c : best_of_each_dtype(group)) y.include(c->limit.value / 1e9);
  for (const size_t i : group.measurements) {
    const Measurement& m = studies.measurements[i];
    x.include(m.intensity());
    x.include(other_intensity(m));
    y.include(m.flops() / 1e9);
  }
}

// All panels share their x axis, and those of a line their y axis: a GPU in a line of its own takes no decades from
// CPUs.
std::vector<Ranges> ranges_of(const Studies& studies, const std::vector<RoofGroup>& groups, size_t in_line) {
  std::vector<Ranges> ranges(groups.size());
  Extent x;
  for (size_t first = 0; first < groups.size(); first += in_line) {
    const size_t end = std::min(first + in_line, groups.size());
    Extent y;
    for (size_t i = first; i < end; ++i) include_group(groups[i], studies, x, y);
    for (size_t i = first; i < end; ++i) ranges[i].y = rounded(y, 1.6, 1.6);
  }
  for (Ranges& one : ranges) one.x = rounded(x, 3, 2);
  return ranges;
}

/// "500G" for 500 GFLOP/s.
std::string flops_tick(double gflops) {
  if (gflops >= 1e6) return tick_text(gflops * 1e-6) + "P";
  if (gflops >= 1e3) return tick_text(gflops * 1e-3) + "T";
  if (gflops >= 1) return tick_text(gflops) + "G";
  return gflops >= 1e-3 ? tick_text(gflops * 1e3) + "M" : tick_text(gflops * 1e6) + "k";
}

std::vector<Tick> ticks_of(Range range, double from, double to, const std::function<std::string(double)>& text) {
  std::vector<Tick> ticks;
  auto at = [&](double power) { return from + (power - range.lo) / (range.hi - range.lo) * (to - from); };
  const double pixels_a_decade = std::abs(to - from) / (range.hi - range.lo);
  constexpr double kTextPitch = 34;
  const int decades_a_name = std::max(1, static_cast<int>(std::ceil(kTextPitch / pixels_a_decade)));
  for (double decade = std::floor(range.lo); decade <= range.hi; ++decade) {
    for (int mantissa = 1; mantissa < 10; ++mantissa) {
      const double power = decade + std::log10(mantissa);
      if (power < range.lo - 1e-9 || power > range.hi + 1e-9) continue;
      const bool is_named = mantissa == 1 ? std::fmod(decade, decades_a_name) == 0
                                          : pixels_a_decade > 110 && (mantissa == 2 || mantissa == 5);
      ticks.push_back({at(power), is_named ? text(std::pow(10, decade) * mantissa) : ""});
    }
  }
  return ticks;
}

// ---- roofs --------------------------------------------------------------------------------------------------------

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
  const std::string end = fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s");
  return threads > 0 && name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

std::string ceiling_text(const Ceiling& c, const RoofGroup& group) {
  return fmt::format("{} · {}", printable(without_threads(c.name, group.threads)), flops_text(c.limit.value));
}

// The boxes of everything that is already in the plot.
std::vector<Box> taken(const Panel& panel) {
  std::vector<Box> boxes;
  for (const Marker& marker : panel.markers) boxes.push_back(marker.box);
  for (const RoofText& text : panel.roof_texts) boxes.insert(boxes.end(), text.boxes.begin(), text.boxes.end());
  return boxes;
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

// Writes the ceilings' names into the right margin and pushes them apart until none covers another.
void name_ceilings_in_margin(Panel& panel, std::vector<std::pair<RoofLine, std::string>> named) {
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

// On small screens there is no margin: only the strong ceilings are named, above their line, where there is room.
void name_ceilings_inside(Panel& panel, const std::vector<std::pair<RoofLine, std::string>>& named) {
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

// Whether the same vectors have a higher roof with fused multiply-adds. The page can show these; on paper they would
// be clutter.
bool has_fused_twin(const Ceiling& c, const RoofGroup& group) {
  return std::any_of(group.roofs.begin(), group.roofs.end(), [&](const Ceiling& other) {
    return !other.is_bandwidth() && other.dtype == c.dtype && other.isa == c.isa + " fma";
  });
}

// Adds every roof; returns the flat ones with their names.
std::vector<std::pair<RoofLine, std::string>> add_ceilings(Panel& panel, const PanelRoof& roof) {
  const std::vector<const Ceiling*> strong = best_of_each_dtype(roof.group);
  const double steepest = roof.group.best_bandwidth();
  std::vector<std::pair<RoofLine, std::string>> named;
  for (const Ceiling& c : roof.group.roofs) {
    if (c.is_bandwidth()) {
      if (const auto line = diagonal_of(c, roof, panel.plot)) panel.roofs.push_back({*line, "", true});
      continue;
    }
    if (has_fused_twin(c, roof.group)) continue;
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

// The width of the margin that the ceilings' names need.
double margin_of(const RoofGroup& group) {
  double widest = 0;
  for (const Ceiling& c : group.roofs) {
    if (!c.is_bandwidth() && !has_fused_twin(c, group)) {
      widest = std::max(widest, text_width(ceiling_text(c, group), kFonts.roof));
    }
  }
  constexpr double kWidest = 240;
  return std::min(widest, kWidest) + kMarginGap + 6;
}

// ---- points -------------------------------------------------------------------------------------------------------

Marker marker_of(const Studies& studies, size_t index, const std::vector<std::string>& series, const Scale& scale) {
  const Measurement& m = studies.measurements[index];
  Marker marker;
  marker.measurement = index;
  marker.center = scale.at(m.intensity(), m.flops());
  marker.y_lo = scale.y_at(m.work.value / m.time.q3);
  marker.y_hi = scale.y_at(m.work.value / m.time.q1);
  marker.bound_x = other_intensity(m) > 0 ? scale.x_at(other_intensity(m)) : marker.center.x;
  const Spread& dram = m.traffic.at("dram").spread;
  marker.has_x_bar = dram.q1 && dram.q3;
  marker.x_lo = marker.has_x_bar ? scale.x_at(m.work.value / *dram.q3) : marker.center.x;
  marker.x_hi = marker.has_x_bar ? scale.x_at(m.work.value / *dram.q1) : marker.center.x;
  marker.y_lo = std::min(marker.y_lo, scale.plot.y1);
  marker.y_hi = std::max(marker.y_hi, scale.plot.y0);
  marker.x_lo = std::max(marker.x_lo, scale.plot.x0);
  marker.x_hi = std::min(marker.x_hi, scale.plot.x1);
  const auto rank = std::find(series.begin(), series.end(), m.series) - series.begin();
  marker.shape = static_cast<size_t>(rank);
  marker.precision = precision_of(m);
  marker.source = source_of(m);
  marker.flagged = m.flagged();
  marker.filled = m.place.cache == "warm";
  marker.box = box_around(marker.center, 2 * kMarkerRadius + 1, 2 * kMarkerRadius + 1);
  return marker;
}

// The points of one problem at one intensity, from the top. One label names all of them.
struct Column {
  std::string label;
  std::vector<const Marker*> markers;
};

std::vector<Column> columns_of(const Studies& studies, const Panel& panel) {
  std::vector<Column> columns;
  std::map<std::string, std::vector<size_t>> columns_of_label;
  for (const Marker& marker : panel.markers) {
    const Measurement& m = studies.measurements[marker.measurement];
    auto same = [&](size_t column) {
      const double other = studies.measurements[columns[column].markers[0]->measurement].intensity();
      return std::abs(m.intensity() / other - 1) < kSameIntensity;
    };
    std::vector<size_t>& known = columns_of_label[m.label];
    auto it = std::find_if(known.begin(), known.end(), same);
    if (it == known.end()) {
      it = known.insert(known.end(), columns.size());
      columns.push_back({m.label, {}});
    }
    columns[*it].markers.push_back(&marker);
  }
  for (Column& column : columns) {
    std::stable_sort(column.markers.begin(), column.markers.end(),
                     [](const Marker* a, const Marker* b) { return a->center.y < b->center.y; });
  }
  return columns;
}

std::vector<size_t> measurements_of(const Column& column) {
  std::vector<size_t> indices;
  for (const Marker* marker : column.markers) indices.push_back(marker->measurement);
  return indices;
}

void add_stems(Panel& panel, const std::vector<Column>& columns) {
  for (const Column& column : columns) {
    const Segment line = {column.markers.front()->center, column.markers.back()->center};
    if (column.markers.size() > 1 && length(line) > 2 * kMarkerRadius) {
      panel.stems.push_back({line, measurements_of(column)});
    }
  }
}

Surroundings surroundings_of(const Panel& panel) {
  Surroundings around;
  around.area = panel.plot.grown(-2);
  around.solid = taken(panel);
  for (const RoofLine& roof : panel.roofs) around.strokes.push_back(roof.line);
  for (const Stem& stem : panel.stems) around.strokes.push_back(stem.line);
  for (const Marker& m : panel.markers) {
    around.strokes.push_back({{m.center.x, m.y_lo}, {m.center.x, m.y_hi}});
    if (m.has_x_bar) around.strokes.push_back({{m.x_lo, m.center.y}, {m.x_hi, m.center.y}});
  }
  return around;
}

// Fills panel.labels. Returns the number of columns without room for a label.
size_t label_columns(Panel& panel, const std::vector<Column>& columns, const std::vector<std::string>& texts) {
  std::vector<LabelRequest> requests;
  for (size_t i = 0; i < columns.size(); ++i) {
    LabelRequest request = {text_width(texts[i], kFonts.label) + 2, text_height(kFonts.label), {}};
    for (const Marker* marker : columns[i].markers) request.anchors.push_back(marker->center);
    requests.push_back(std::move(request));
  }
  const auto places = place_labels(requests, surroundings_of(panel));
  panel.labels.clear();
  size_t missing = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) {
      ++missing;
      continue;
    }
    const LabelPlace& place = *places[i];
    Segment leader = {place.anchor, place.box.nearest(place.anchor)};
    const double reach = length(leader);
    const double share = reach > 0 ? std::min(1.0, (kMarkerRadius + 1) / reach) : 1;
    leader.a = {leader.a.x + (leader.b.x - leader.a.x) * share, leader.a.y + (leader.b.y - leader.a.y) * share};
    panel.labels.push_back({texts[i], place.box, leader, place.leader, measurements_of(columns[i])});
  }
  return missing;
}

double mean_leader(const Panel& panel) {
  double sum = 0;
  for (const Label& label : panel.labels) sum += label.has_leader ? length(label.leader) : 0;
  return panel.labels.empty() ? 0 : sum / static_cast<double>(panel.labels.size());
}

// How long a network, or a study, spends in this row.
double seconds_of(const Measurement& m) { return m.time.seconds * static_cast<double>(m.identity.count.value_or(1)); }

// The ranks of the `most` greatest values, in ascending order.
std::vector<size_t> greatest(const std::vector<double>& values, size_t most) {
  std::vector<size_t> ranks(values.size());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  std::stable_sort(ranks.begin(), ranks.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  ranks.resize(std::min(most, ranks.size()));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// The names that numbers stand for, in the order of the rows. A key of thousands of names would be no key.
std::vector<std::string> key_of(const Studies& studies) {
  std::vector<std::string> names;
  std::vector<double> seconds;
  std::map<std::string, size_t> rank_of;
  for (const Measurement& m : studies.measurements) {
    if (!m.can_be_drawn()) continue;
    const auto [it, is_new] = rank_of.try_emplace(m.label, names.size());
    if (is_new) names.push_back(m.label), seconds.push_back(0);
    seconds[it->second] += seconds_of(m);
  }
  std::vector<std::string> key;
  for (const size_t rank : greatest(seconds, kMaxNamed)) key.push_back(names[rank]);
  return key;
}

// The columns that get a label: of those whose name is in the key, the ones that take most time.
std::vector<Column> named_columns(const std::vector<Column>& columns, const Studies& studies,
                                  const std::map<std::string, size_t>& number_of) {
  std::vector<Column> candidates, named;
  std::vector<double> seconds;
  for (const Column& column : columns) {
    if (!number_of.contains(column.label)) continue;
    candidates.push_back(column);
    seconds.push_back(0);
    for (const Marker* marker : column.markers) seconds.back() += seconds_of(studies.measurements[marker->measurement]);
  }
  for (const size_t rank : greatest(seconds, kMaxNamed)) named.push_back(candidates[rank]);
  return named;
}

void label_panel(Panel& panel, const Studies& studies, bool numbered) {
  std::map<std::string, size_t> number_of;
  for (const std::string& name : key_of(studies)) number_of.try_emplace(name, number_of.size() + 1);
  const std::vector<Column> all = columns_of(studies, panel);
  add_stems(panel, all);
  const std::vector<Column> columns = named_columns(all, studies, number_of);
  std::vector<std::string> names, numbers;
  for (const Column& column : columns) {
    constexpr double kWidestLabel = 170;
    names.push_back(fit_text(printable(column.label), kFonts.label, kWidestLabel));
    numbers.push_back(std::to_string(number_of.at(column.label)));
  }
  if (!numbered && columns.size() <= kMaxTextLabels) {
    panel.numbered = label_columns(panel, columns, names) > 0 || mean_leader(panel) > kMeanLeader;
  } else {
    panel.numbered = true;
  }
  if (panel.numbered) panel.unlabelled = label_columns(panel, columns, numbers) + all.size() - columns.size();
}

// ---- figure ---------------------------------------------------------------------------------------------------------

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
    line += fmt::format(" · {} thread{} · {}", machine.threads, machine.threads == 1 ? "" : "s", day_of(machine.date));
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
