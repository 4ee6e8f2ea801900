// See shapes.h.
#include "bench/report/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "common/number.h"

namespace gable::bench::report {
namespace {

// Corners on a circle; with `inner`, a star whose inner corners lie at that radius.
struct Polygon {
  int corners;
  double degrees;  // where the first corner lies
  double radius, inner;
};

std::string path_of(const Polygon& polygon) {
  const int count = polygon.inner > 0 ? 2 * polygon.corners : polygon.corners;
  std::string path;
  for (int i = 0; i < count; ++i) {
    const double angle = (polygon.degrees + 360.0 * i / count) * std::acos(-1.0) / 180;
    const double r = polygon.inner > 0 && i % 2 ? polygon.inner : polygon.radius;
    path += fmt::format("{}{:.3f} {:.3f}", i ? "L" : "M", r * std::cos(angle), r * std::sin(angle));
  }
  return path + "Z";
}

// The first outlines, the most different ones first.
const std::vector<std::string>& base_shapes() {
  static const std::vector<std::string> shapes = {
      "M1 0C1 .552.552 1 0 1C-.552 1-1 .552-1 0C-1-.552-.552-1 0-1C.552-1 1-.552 1 0Z",  // circle
      path_of({4, 45, 1.25, 0}),                                                         // square
      path_of({4, 0, 1.3, 0}),                                                           // diamond
      path_of({3, -90, 1.3, 0}),                                                         // triangle
      path_of({3, 90, 1.3, 0}),                                                          // triangle on its tip
      path_of({5, -90, 1.4, 0.6}),                                                       // star
      path_of({4, -90, 1.45, 0.5}),                                                      // star of four
      path_of({6, 0, 1.2, 0}),                                                           // hexagon
      path_of({3, 0, 1.3, 0}),                                                           // triangle to the right
      path_of({3, 180, 1.3, 0}),                                                         // triangle to the left
      "M-.4-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",                              // plus
      "M-1.1-1.1H1.1L.25 0L1.1 1.1H-1.1L-.25 0Z",                                        // hourglass
      "M-1.1-1.1L0-.25L1.1-1.1V1.1L0 .25L-1.1 1.1Z",                                     // bow tie
      "M-1.2.6C-1.2-1.1 1.2-1.1 1.2.6Z",                                                 // half a disc
      "M-1.2-.6C-1.2 1.1 1.2 1.1 1.2-.6Z",                                               // half a disc, below
      path_of({5, -90, 1.2, 0}),                                                         // pentagon
      "M-1.4-.55H1.4V.55H-1.4Z",                                                         // bar
      "M-.55-1.4H.55V1.4H-.55Z",                                                         // bar, upright
      "M-.7-1H.7L1.3 1H-1.3Z",                                                           // trapezium
      "M-1.3-1H1.3L.7 1H-.7Z",                                                           // trapezium on its tip
      "M-1.2-.7L0 .1L1.2-.7V.3L0 1.1L-1.2 .3Z",                                          // chevron
  };
  return shapes;
}

}  // namespace

std::string shape_path(size_t rank) {
  const std::vector<std::string>& base = base_shapes();
  if (rank < base.size()) return base[rank];
  return path_of({static_cast<int>(rank - base.size()) + 6, -90, 1.4, 0.7});  // stars of ever more points
}

std::string glyph_path(const std::string& precision) {
  static const std::map<std::string, std::string> glyphs = {
      {"bf16", "M-.14 0L0-.14L.14 0L0 .14Z"}, {"f16", "M-.5 0H.5"},   {"tf32", "M0-.5V.5"},
      {"f64", "M-.45 0H.45M0-.45V.45"},       {"i8", "M-.4.4L.4-.4"}, {"split3", "M-.4-.4L.4.4"},
      {"split6", "M-.4-.4L.4.4M-.4.4L.4-.4"},
  };
  const auto found = glyphs.find(precision);
  return found == glyphs.end() ? "" : found->second;
}

std::string scaled_path(const std::string& path, double factor) {
  std::string out;
  for (size_t i = 0; i < path.size();) {
    if (std::string_view("0123456789.-").find(path[i]) == std::string_view::npos) {
      out += path[i++];
      continue;
    }
    double value = 0;
    i += std::max<size_t>(1, parse_number(std::string_view(path).substr(i), value));
    if (!out.empty() && std::isdigit(static_cast<unsigned char>(out.back()))) out += ' ';
    out += fmt::format("{:.2f}", value * factor);
  }
  return out;
}

}  // namespace gable::bench::report
