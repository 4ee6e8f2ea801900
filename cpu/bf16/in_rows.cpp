// See in_rows.h. Fitted to 324 random layers on a Zen 5: 1.0057 of the faster of both ways there, 1.0098 on 247 others.
#include "cpu/bf16/in_rows.h"

#include <algorithm>
#include <numeric>

#include "cpu/bf16/axis.h"
#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {
namespace {

constexpr std::int64_t kMaxBorder = 64;  // outputs beside those that read all taps: the model looks at each
constexpr std::int64_t kMaxColumns = 1 << 12, kMaxKernelColumns = 64;
// Positions of one vector and of two whose products wait for no latency, and the load of weights in positions.
constexpr double kFewNarrow = 6, kFew = 5, kWeights = 3;
constexpr double kOne = 1.3;          // the products of one position, of a vector
constexpr double kHalvedVectors = 2;  // times the products, on other cores
// Cycles.
constexpr double kTap = 5;
constexpr double kPanel = 200;                   // of a panel and work unit
constexpr double kHalf = 13;                     // besides its products
constexpr double kPart = 20, kPartPosition = 2;  // a part of a half at the image's border, by vectors
constexpr double kStore = 1, kStoreFlat = 4;     // an output of a vector
constexpr double kPixel = 5, kPartPixel = 7;     // to stage a pixel whose channels fill whole 16 bytes, or do not
constexpr double kPartGroupPixel = 6;            // the same as kPartPixel, for one of several groups
constexpr double kPixelBlock = 6.6;              // to stage 32 channels of any of these pixels
constexpr double kReadPair = 1;                  // a pair of channels of a tap of a half in the image

/// What all halves of a panel multiply.
struct Panel {
  double pairs;  // of channels, of a tap
  double vectors;
  /// Products of a tap of `positions` positions. Few wait for the latency of their products.
  double tap(double positions) const {
    const double products = positions == 1 ? kOne * vectors
                            : vectors == 1 ? (std::max(positions, kFewNarrow) + kWeights) / 2
                                           : std::max(positions, kFew);
    return kTap + pairs * products * (core_kind(kVector) == CoreKind::whole_512 ? 1 : kHalvedVectors);
  }
};

/// Calls use(panel) for panels of two vectors and for a last one of one vector.
template <class Use>
double sum_of_panels(const Blocking& b, const Use& use) {
  const double pairs = static_cast<double>(ceil_div(b.terms.channels, std::int64_t{2}));
  const std::int64_t rest = b.geometry.group_k % kLanes;
  const std::int64_t whole = b.geometry.group_k / kLanes + (rest > kVector ? 1 : 0);
  double sum = whole > 0 ? use(Panel{pairs, 2}) * static_cast<double>(whole) : 0;
  if (rest > 0 && rest <= kVector) sum += use(Panel{pairs, 1});
  return sum;
}

/// Of an image and a group, staged.
double strip_cycles(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const Geometry& g = b.geometry;
  const bool flat = prefers_flat(b, unit, b.work.rows, b.work.columns);
  const std::int64_t length = flat ? (b.work.rows - 1) * b.strip.columns + b.work.columns : b.work.columns;
  const std::int64_t halves = ceil_div(length, std::int64_t{b.positions});
  const double positions = static_cast<double>(length) / static_cast<double>(halves);
  const double units = static_cast<double>(b.work.row_blocks * b.work.column_blocks);
  const double runs = units * static_cast<double>(flat ? 1 : b.work.rows);
  const double taps = kernel_rows_inside(p) / static_cast<double>(g.rows) * static_cast<double>(b.terms.tap_columns);
  const double products = sum_of_panels(b, [&](const Panel& panel) {
    const double stored = positions * panel.vectors * (flat && b.work.rows > 1 ? kStoreFlat : kStore);
    return units * kPanel + runs * static_cast<double>(halves) * (kHalf + stored + taps * panel.tap(positions));
  });
  const double pixels = units * static_cast<double>(b.phases.count() * b.strip.rows * b.strip.columns *
                                                    (b.terms.fold > 1 ? p.stride_w : 1));
  const bool whole = g.group_c % 8 == 0;
  const double pixel = g.groups == 1 ? (whole ? kPixel : kPartPixel) : (whole ? 0 : kPartGroupPixel);
  const double blocks = static_cast<double>(g.group_c) / static_cast<double>(kChannels);
  const double staged = pixels * (pixel + blocks * kPixelBlock);
  return products + staged;
}

/// Of an image and a group, read in rows.
double in_rows_cycles(const Conv2dProblem& p, const Blocking& b) {
  const Geometry& g = b.geometry;
  const std::int64_t step = even_part(b.work.columns, std::int64_t{b.positions});
  const WindowAxis axis = cpu::column_axis(p);
  const double rows = static_cast<double>(g.rows);
  return sum_of_panels(b, [&](const Panel& panel) {
    double of_row = 0, of_tap_row = 0;
    for (std::int64_t first = 0; first < g.columns; first += step) {
      const std::int64_t count = std::min(step, g.columns - first);
      of_row += kHalf + static_cast<double>(count) * panel.vectors * kStore;
      TapRange before{-1, -1};
      for (std::int64_t kw = 0; kw < b.terms.tap_columns; ++kw) {
        const TapRange inside =
            b.terms.fold > 1 ? TapRange{0, count}
                             : taps_inside(axis.first(first) + kw * axis.dilation, axis.size, axis.stride, count);
        if (inside.begin == inside.end) continue;
        const auto positions = static_cast<double>(inside.end - inside.begin);
        if (inside.end - inside.begin < count && (inside.begin != before.begin || inside.end != before.end)) {
          of_row += kPart + positions * panel.vectors * kPartPosition;
        }
        before = inside;
        of_tap_row += panel.tap(positions) + panel.pairs * kReadPair;
      }
    }
    return static_cast<double>(b.work.row_blocks) * kPanel + of_row * rows + of_tap_row * kernel_rows_inside(p);
  });
}

}  // namespace

bool may_read_in_rows(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const Geometry& g = b.geometry;
  if (unit.loads_full_halves || b.input != InputPath::staged || b.terms.parts != 1 || g.pool != 1) return false;
  if (b.terms.gathers || is_pointwise(p) || b.work.weights_outermost || g.groups * g.group_c != g.c) return false;
  const Axis rows = row_axis(p, g), columns = column_axis(p, g);
  const std::int64_t border = std::max(g.rows - outputs_inside(rows), g.columns - outputs_inside(columns));
  if (border > kMaxBorder || g.columns > kMaxColumns || p.s > kMaxKernelColumns) return false;
  // Folded columns are one run of channels: those of a single group, none of them in padding.
  if (b.terms.fold > 1 && (g.groups > 1 || outputs_inside(columns) < g.columns)) return false;
  const std::int64_t pitch = p.stride_w * p.c * 2;
  return l1_bytes() / kL1WayBytes * (kL1WayBytes / std::gcd(kL1WayBytes, pitch)) >=
         std::min<std::int64_t>(b.positions, g.columns) + 4;
}

double window_cycles(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const double one = b.input == InputPath::in_rows ? in_rows_cycles(p, b) : strip_cycles(p, b, unit);
  return static_cast<double>(b.geometry.n * b.geometry.groups) * one;
}

}  // namespace gable::cpu::bf16
