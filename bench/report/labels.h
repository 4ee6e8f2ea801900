// Label placement: the names of points cover neither each other, nor a point, nor the roofs' names. A greedy pass in
// each of several orders, then rounds in which each label may move to a better place given the others; the best result
// is kept. Deterministic: the same study gives the same picture.
#pragma once

#include <optional>
#include <vector>

#include "bench/report/geometry.h"

namespace gable::bench::report {

struct LabelRequest {
  double width = 0, height = 0;
  std::vector<Pixel> anchors;  // points that the label names; it is placed next to one of them
};

struct LabelPlace {
  Box box;
  Pixel anchor;         // the point of the request that it is next to
  bool leader = false;  // too far away to be obvious: draw a line
};

struct Surroundings {
  Box area;                      // labels stay inside
  std::vector<Box> solid;        // never covered: points, other text
  std::vector<Segment> strokes;  // better not covered: roofs, error bars
};

// One place for each request, or none if every candidate would cover something solid.
std::vector<std::optional<LabelPlace>> place_labels(const std::vector<LabelRequest>& requests,
                                                    const Surroundings& surroundings);

}  // namespace gable::bench::report
