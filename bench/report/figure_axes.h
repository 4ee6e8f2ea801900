// The axes of the figure: their ranges, which show all points, and their ticks. Used by figure.cpp and its parts alone.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "bench/report/figure.h"
#include "bench/report/roofs.h"

namespace gable::bench::report {

/// Intensities that differ by less are one point's.
inline constexpr double kSameIntensity = 0.02;

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

// The intensity at the level that bounds the row, where that is not DRAM's; 0 where it is.
double other_intensity(const Measurement& m);

// The ranges of each group's panel. All panels share their x axis, and the `in_line` panels of a line their y axis: a
// GPU in a line of its own takes no decades from CPUs.
std::vector<Ranges> ranges_of(const Studies& studies, const std::vector<RoofGroup>& groups, size_t in_line);

// Ticks between the pixels `from` and `to`, named by `text`.
std::vector<Tick> ticks_of(Range range, double from, double to, const std::function<std::string(double)>& text);

// "500G" for 500 GFLOP/s.
std::string flops_tick(double gflops);

}  // namespace gable::bench::report
