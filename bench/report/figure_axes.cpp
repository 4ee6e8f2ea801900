// See figure_axes.h.
#include "bench/report/figure_axes.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "bench/common/text.h"
#include "bench/report/figure_roofs.h"

namespace gable::bench::report {
namespace {

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

}  // namespace

double other_intensity(const Measurement& m) {
  constexpr std::string_view kMemory = "memory:";
  if (!m.verdict.bound.starts_with(kMemory)) return 0;
  const auto level = m.traffic.find(m.verdict.bound.substr(kMemory.size()));
  if (level == m.traffic.end() || level->first == m.level()) return 0;
  const double intensity = m.work.value / level->second.value;
  return std::abs(intensity / m.intensity() - 1) < kSameIntensity ? 0 : intensity;
}

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

}  // namespace gable::bench::report
