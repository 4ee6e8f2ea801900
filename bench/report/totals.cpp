// See totals.h.
#include "bench/report/totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "bench/common/text.h"
#include "bench/record/totals.h"
#include "bench/report/columns.h"

namespace gable::bench::report {
namespace {

constexpr std::size_t kTotalColumns = 9;
using TotalCells = std::array<std::string, kTotalColumns>;
constexpr std::array<bool, kTotalColumns> kTotalRight = {false, false, false, false, true, true, true, true, false};

bool same_network(const NetworkTotal& a, const NetworkTotal& b) {
  return a.suite == b.suite && a.dtype == b.dtype && a.cache == b.cache;
}

/// A vendor's library if one ran the network, else the first device.
const NetworkTotal& baseline_of(const NetworkTotal& total, const std::vector<NetworkTotal>& all) {
  const NetworkTotal* baseline = nullptr;
  for (const NetworkTotal& other : all) {
    if (!same_network(total, other)) continue;
    if (baseline == nullptr || (is_vendor_library(other.device) && !is_vendor_library(baseline->device))) {
      baseline = &other;
    }
  }
  return *baseline;
}

using Times = std::map<std::string, double>;  // by layer

Times times_of(const NetworkTotal& total, const std::vector<Row>& rows) {
  Times times;
  for (const Row& row : rows) {
    const Identity& i = row.identity;
    if (i.count && i.suite == total.suite && i.dtype == total.dtype && i.math == total.math &&
        i.layout == total.layout && row.place.cache == total.cache && row.place.device == total.device) {
      times[i.name] = row.time.seconds;
    }
  }
  return times;
}

/// "1.05x onednn; layers: geo 1.02, 7 of 66 below 1, worst 0.81".
std::string comparison(const NetworkTotal& total, const NetworkTotal& baseline, const std::vector<Row>& rows) {
  if (&total == &baseline) return "";
  const Times own = times_of(total, rows);
  double logs = 0, worst = INFINITY;
  int layers = 0, below = 0;
  for (const auto& [name, seconds] : times_of(baseline, rows)) {
    const auto found = own.find(name);
    if (found == own.end()) continue;
    const double ratio = seconds / found->second;
    logs += std::log(ratio);
    worst = std::min(worst, ratio);
    below += ratio < 1 ? 1 : 0;
    ++layers;
  }
  if (layers == 0) return "";
  const bool same_layers = layers == total.layers && layers == baseline.layers;
  const std::string whole = same_layers ? fmt::format("{:.2f}x ", baseline.seconds / total.seconds) : "";
  return fmt::format("{}{}; layers: geo {:.2f}, {} of {} below 1, worst {:.2f}", whole, printable(baseline.device),
                     std::exp(logs / layers), below, layers, worst);
}

TotalCells cells_of(const NetworkTotal& total, const std::string& against) {
  return {printable(total.suite),
          total.dtype,
          total.cache,
          printable(total.device),
          total.is_whole() ? std::to_string(total.layers) : fmt::format("{}/{}", total.layers, total.layers_of_list),
          std::to_string(total.convolutions),
          seconds_text(total.seconds),
          number_text(total.flop / total.seconds / 1e9),
          against};
}

/// What a series has behind its device and kByAuto.
std::string_view after_device(const Measurement& m) {
  std::string_view rest(m.series);
  rest.remove_prefix(m.place.device.size());
  if (rest.starts_with(kByAuto)) rest.remove_prefix(kByAuto.size());
  return rest;
}

/// Rows and refusals of lists.
struct Layers {
  std::vector<Row> rows;
  std::vector<Refusal> refused;
};

Layers layers_of(const Studies& studies) {
  Layers layers;
  std::set<std::string> lists;
  for (const Measurement& m : studies.measurements) {
    if (!m.identity.count) continue;
    layers.rows.push_back(m);
    Placement& place = layers.rows.back().place;
    place.device = place.asked.empty() ? m.series : place.asked + std::string(after_device(m));
    place.asked.clear();
    lists.insert(m.identity.suite);
  }
  std::copy_if(studies.refused.begin(), studies.refused.end(), std::back_inserter(layers.refused),
               [&](const Refused& r) { return lists.contains(r.suite); });
  return layers;
}

/// All networks as if they were one.
Layers together(Layers layers) {
  const auto rename = [](std::string& suite, std::string& name) {
    name = suite + "/" + name;
    suite = "all";
  };
  for (Row& row : layers.rows) rename(row.identity.suite, row.identity.name);
  for (Refusal& r : layers.refused) rename(r.suite, r.name);
  return layers;
}

/// Adds a line for each total; returns whether they have all layers.
bool add_lines(const Layers& layers, std::vector<TotalCells>& lines) {
  const std::vector<NetworkTotal> totals = network_totals(layers.rows, layers.refused);
  for (const NetworkTotal& total : totals) {
    lines.push_back(cells_of(total, comparison(total, baseline_of(total, totals), layers.rows)));
  }
  return std::all_of(totals.begin(), totals.end(), [](const NetworkTotal& total) { return total.is_whole(); });
}

}  // namespace

std::string totals_table(const Studies& studies) {
  const Layers layers = layers_of(studies);
  if (layers.rows.empty()) return "";
  std::vector<TotalCells> lines{
      {"network", "dtype", "cache", "device", "layers", "convolutions", "T", "GFLOP/s", "against"}};
  const bool whole = add_lines(layers, lines);
  const auto other_suite = [&](const Row& row) { return row.identity.suite != layers.rows.front().identity.suite; };
  if (std::any_of(layers.rows.begin(), layers.rows.end(), other_suite)) add_lines(together(layers), lines);
  return "All convolutions of each network, counts included" +
         std::string(whole ? ""
                           : " (n/m layers: the others did not run on that device, or their lines can't be read)") +
         "\n" + in_columns(lines, kTotalRight);
}

}  // namespace gable::bench::report
