// Plane geometry in pixels, y downwards, for label placement and figure.
#pragma once

#include <algorithm>

namespace gable::bench::report {

struct Pixel {
  double x = 0, y = 0;
};

struct Box {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;

  double width() const { return x1 - x0; }
  double height() const { return y1 - y0; }
  bool overlaps(const Box& other) const { return x0 < other.x1 && other.x0 < x1 && y0 < other.y1 && other.y0 < y1; }
  bool contains(const Box& other) const { return x0 <= other.x0 && y0 <= other.y0 && x1 >= other.x1 && y1 >= other.y1; }
  Box grown(double by) const { return {x0 - by, y0 - by, x1 + by, y1 + by}; }
  Pixel nearest(Pixel p) const { return {std::clamp(p.x, x0, x1), std::clamp(p.y, y0, y1)}; }
};

inline Box box_around(Pixel center, double width, double height) {
  return {center.x - width / 2, center.y - height / 2, center.x + width / 2, center.y + height / 2};
}

struct Segment {
  Pixel a, b;
};

// The part of `segment` inside `box` (Liang-Barsky); false where there is none.
bool clip(Segment& segment, const Box& box);
double length(const Segment& segment);

}  // namespace gable::bench::report
