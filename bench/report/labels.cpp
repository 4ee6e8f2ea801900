// Label placement. Candidates lie on rings around each anchor. Candidates that cover something solid are dropped; the
// others are ranked by distance, covered strokes and crossed leaders. A grid finds what is near a candidate, and each
// label keeps its cheapest candidates only, so that ten thousand points take a second.
#include "bench/report/labels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "bench/report/box_grid.h"

namespace gable::bench::report {
namespace {

constexpr std::array<double, 13> kRings = {7, 11, 16, 22, 30, 40, 52, 66, 82, 100, 120, 145, 175};
constexpr int kDirections = 24;
constexpr double kLeaderFrom = 12;  // a ring nearer than this needs no leader
constexpr double kGap = 1.5;        // between labels and what they must not cover
constexpr int kRounds = 8;
constexpr size_t kMaxCandidates = 120;  // of one label
constexpr size_t kMaxAnchors = 12;      // of one label
constexpr size_t kFew = 80;             // labels up to which every order is tried
constexpr double kStrokeCost = 0.8;     // a pixel of line under the text costs as much as this many pixels of distance
constexpr double kCrossingCost = 60;
constexpr double kLeaderOverPointCost = 50;
constexpr double kUnplacedCost = 5000;
constexpr double kImpossible = std::numeric_limits<double>::infinity();

using Places = std::vector<std::optional<LabelPlace>>;

struct Candidate {
  LabelPlace place;
  double cost = 0;  // cost without regard to other labels
};

Segment leader_of(const LabelPlace& place) { return {place.anchor, place.box.nearest(place.anchor)}; }

Box bounds_of(const Segment& s) {
  return {std::min(s.a.x, s.b.x), std::min(s.a.y, s.b.y), std::max(s.a.x, s.b.x), std::max(s.a.y, s.b.y)};
}

bool touches(const Segment& segment, const Box& box) {
  const Box around = bounds_of(segment);
  if (around.x1 < box.x0 || box.x1 < around.x0 || around.y1 < box.y0 || box.y1 < around.y0) return false;
  Segment inside = segment;
  return clip(inside, box);
}

double turn(Pixel a, Pixel b, Pixel c) { return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x); }

bool cross(const Segment& s, const Segment& t) {
  return turn(s.a, s.b, t.a) * turn(s.a, s.b, t.b) < 0 && turn(t.a, t.b, s.a) * turn(t.a, t.b, s.b) < 0;
}

// Each different box once, to a tenth of a pixel: points at one place are one obstacle.
std::vector<Box> without_repeats(std::vector<Box> boxes) {
  const auto key = [](const Box& b) {
    return std::array{std::round(10 * b.x0), std::round(10 * b.y0), std::round(10 * b.x1), std::round(10 * b.y1)};
  };
  std::sort(boxes.begin(), boxes.end(), [&](const Box& a, const Box& b) { return key(a) < key(b); });
  const auto same = [&](const Box& a, const Box& b) { return key(a) == key(b); };
  boxes.erase(std::unique(boxes.begin(), boxes.end(), same), boxes.end());
  return boxes;
}

// As boxes from end to end: x0 and y0 may be the greater ones.
std::vector<Segment> without_repeats(const std::vector<Segment>& segments) {
  std::vector<Box> ends;
  for (const Segment& s : segments) ends.push_back({s.a.x, s.a.y, s.b.x, s.b.y});
  std::vector<Segment> once;
  for (const Box& b : without_repeats(std::move(ends))) once.push_back({{b.x0, b.y0}, {b.x1, b.y1}});
  return once;
}

// The surroundings, by place.
struct Neighbourhood {
  explicit Neighbourhood(const Surroundings& around)
      : area(around.area),
        strokes(without_repeats(around.strokes)),
        solid_near(around.area, without_repeats(around.solid)),
        strokes_near(around.area) {
    for (const Segment& stroke : strokes) strokes_near.add(bounds_of(stroke));
  }

  Box area;
  std::vector<Segment> strokes;
  BoxGrid solid_near, strokes_near;
};

double cost_alone(const LabelPlace& place, double ring, Neighbourhood& around) {
  double cost = ring + ring * ring / 60;  // one long leader is worse than two short ones
  around.strokes_near.any_near(place.box, [&](size_t i, const Box&) {
    Segment covered = around.strokes[i];
    if (clip(covered, place.box)) cost += 4 + kStrokeCost * length(covered);
    return false;
  });
  if (place.leader) {
    cost += 6;
    const Segment leader = leader_of(place);
    const Pixel from = place.anchor;
    around.solid_near.any_near(bounds_of(leader), [&](size_t, const Box& box) {
      const bool own = box.grown(0.5).contains({from.x, from.y, from.x, from.y});
      if (!own && touches(leader, box)) cost += kLeaderOverPointCost;
      return false;
    });
  }
  return cost;
}

bool is_free(const Box& box, Neighbourhood& around) {
  return around.area.contains(box) && !around.solid_near.overlaps(box.grown(kGap));
}

// Cheapest first.
std::vector<Candidate> candidates_of(const LabelRequest& request, Neighbourhood& around) {
  std::vector<Candidate> candidates;
  for (size_t rank = 0; rank < std::min(request.anchors.size(), kMaxAnchors); ++rank) {
    const Pixel anchor = request.anchors[rank];
    for (double ring : kRings) {
      for (int direction = 0; direction < kDirections; ++direction) {
        const double angle = 2 * std::numbers::pi * direction / kDirections;
        const Pixel center = {anchor.x + std::cos(angle) * (ring + request.width / 2),
                              anchor.y - std::sin(angle) * (ring + request.height / 2)};
        const LabelPlace place = {box_around(center, request.width, request.height), anchor, ring >= kLeaderFrom};
        if (!is_free(place.box, around)) continue;
        // Earlier anchors first; beside and above read more easily than below.
        const double preference = 0.5 * static_cast<double>(rank) + (std::sin(angle) < -0.1 ? 1.5 : 0);
        candidates.push_back({place, cost_alone(place, ring, around) + preference});
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  if (candidates.size() > kMaxCandidates) candidates.resize(kMaxCandidates);
  return candidates;
}

// Infinite where a label or its leader would cover another label.
double cost_beside(const LabelPlace& place, const Places& placed, size_t self) {
  double cost = 0;
  const Box padded = place.box.grown(kGap);
  const Segment leader = leader_of(place);
  for (size_t i = 0; i < placed.size(); ++i) {
    if (i == self || !placed[i]) continue;
    if (padded.overlaps(placed[i]->box)) return kImpossible;
    const Segment other = leader_of(*placed[i]);
    if (place.leader && touches(leader, placed[i]->box)) return kImpossible;
    if (placed[i]->leader && touches(other, place.box)) return kImpossible;
    if (place.leader && placed[i]->leader && cross(leader, other)) cost += kCrossingCost;
  }
  return cost;
}

// Moves the label to its best place given the others. Returns its cost.
double choose(size_t self, const std::vector<Candidate>& candidates, Places& placed) {
  double best = kImpossible;
  std::optional<LabelPlace> chosen;
  for (const Candidate& candidate : candidates) {
    if (candidate.cost >= best) break;
    const double cost = candidate.cost + cost_beside(candidate.place, placed, self);
    if (cost < best) {
      best = cost;
      chosen = candidate.place;
    }
  }
  placed[self] = chosen;
  return chosen ? best : kUnplacedCost;
}

// The orders to try. Earlier labels get better places, and no single order is best for every study.
std::vector<std::vector<size_t>> orders_of(const std::vector<LabelRequest>& requests,
                                           const std::vector<std::vector<Candidate>>& candidates) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<std::vector<size_t>> orders;
  auto add = [&](auto key) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    orders.push_back(order);
    orders.emplace_back(order.rbegin(), order.rend());
  };
  add([&](size_t i) { return requests[i].anchors[0].x; });
  if (requests.size() > kFew) return orders;
  add([&](size_t i) { return requests[i].anchors[0].y; });
  add([&](size_t i) { return candidates[i].size(); });
  return orders;
}

}  // namespace

bool clip(Segment& segment, const Box& box) {
  const double dx = segment.b.x - segment.a.x, dy = segment.b.y - segment.a.y;
  const std::array<double, 4> p = {-dx, dx, -dy, dy};
  const std::array<double, 4> q = {segment.a.x - box.x0, box.x1 - segment.a.x, segment.a.y - box.y0,
                                   box.y1 - segment.a.y};
  double from = 0, to = 1;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      if (q[i] < 0) return false;
    } else if (p[i] < 0) {
      from = std::max(from, q[i] / p[i]);
    } else {
      to = std::min(to, q[i] / p[i]);
    }
  }
  if (from > to) return false;
  const Pixel a = segment.a;
  segment = {{a.x + from * dx, a.y + from * dy}, {a.x + to * dx, a.y + to * dy}};
  return true;
}

double length(const Segment& segment) { return std::hypot(segment.b.x - segment.a.x, segment.b.y - segment.a.y); }

std::vector<std::optional<LabelPlace>> place_labels(const std::vector<LabelRequest>& requests,
                                                    const Surroundings& surroundings) {
  Neighbourhood around(surroundings);
  std::vector<std::vector<Candidate>> candidates;
  for (const LabelRequest& request : requests) candidates.push_back(candidates_of(request, around));
  Places best;
  double least = kImpossible;
  for (const std::vector<size_t>& order : orders_of(requests, candidates)) {
    Places placed(requests.size());
    double cost = 0, before = kImpossible;
    for (int round = 0; round < kRounds; ++round) {
      cost = 0;
      for (size_t self : order) cost += choose(self, candidates[self], placed);
      if (cost == before) break;
      before = cost;
    }
    if (cost < least || best.empty()) {
      least = cost;
      best = std::move(placed);
    }
  }
  return best;
}

}  // namespace gable::bench::report
