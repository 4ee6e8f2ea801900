// See figure_points.h.
#include "bench/report/figure_points.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "bench/common/text.h"
#include "bench/report/figure_roofs.h"
#include "bench/report/labels.h"

namespace gable::bench::report {
namespace {

constexpr double kMarkerRadius = 4.5;
constexpr size_t kMaxTextLabels = 34;  // a panel with more problems than this is numbered
constexpr size_t kMaxNamed = 240;      // most names in the key, and labels in a panel; the ones that take most time
constexpr double kMeanLeader = 20;  // pixels: if names lie farther from their points on average, numbers replace them

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

}  // namespace

Marker marker_of(const Studies& studies, size_t index, const std::vector<std::string>& series, const Scale& scale) {
  const Measurement& m = studies.measurements[index];
  Marker marker;
  marker.measurement = index;
  marker.center = scale.at(m.intensity(), m.flops());
  marker.y_lo = scale.y_at(m.work.value / m.time.q3);
  marker.y_hi = scale.y_at(m.work.value / m.time.q1);
  marker.bound_x = other_intensity(m) > 0 ? scale.x_at(other_intensity(m)) : marker.center.x;
  const Spread& bytes = m.farthest().spread;
  marker.has_x_bar = bytes.q1 && bytes.q3;
  marker.x_lo = marker.has_x_bar ? scale.x_at(m.work.value / *bytes.q3) : marker.center.x;
  marker.x_hi = marker.has_x_bar ? scale.x_at(m.work.value / *bytes.q1) : marker.center.x;
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

}  // namespace gable::bench::report
