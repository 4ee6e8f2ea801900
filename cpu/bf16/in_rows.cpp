// See in_rows.h. Fitted to random layers on a Zen 5: 1.010 of the faster of both ways on 100 of them, 1.011 on 123
// others.
#include "cpu/bf16/in_rows.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "cpu/bf16/axis.h"
#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/common/tiling.h"

namespace gable::cpu::bf16 {
namespace {

constexpr std::int64_t kMaxRowColumns = 1 << 12;
constexpr std::size_t kMostRows = kNarrowPositions;  // of a half
constexpr std::int64_t kFewestInL1 = 6;              // positions of a half, if the rows have them
// Positions of one vector and of two whose products wait for no latency, and the load of weights in positions.
constexpr double kFewNarrow = 6, kFew = 5, kWeights = 3;
constexpr double kOne = 1.3;          // the products of one position, of a vector
constexpr double kHalvedVectors = 2;  // times the products, on other cores
// Cycles.
constexpr double kTap = 5;
constexpr double kPanel = 200;                   // of a panel and work unit
constexpr double kHalf = 13;                     // besides its products
constexpr double kPart = 50, kPartPosition = 3;  // a part of a half at the image's border, by vectors
constexpr double kStore = 1, kStoreFlat = 4;     // an output of a vector
constexpr double kPixel = 5, kPartPixel = 7;     // to stage a pixel whose channels fill whole 16 bytes, or do not
constexpr double kPartGroupPixel = 6;            // the same as kPartPixel, for one of several groups
constexpr double kPixelBlock = 6.6;              // to stage 32 channels of any of these pixels
constexpr double kReadPair = 0.6;                // a pair of channels of a tap of a half in the image

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

/// Halves of as many rows, in an image, and the kernel rows that these read in sum.
struct RowHalves {
  std::int64_t halves = 0, kernel_rows = 0;
};
/// The halves of an image by their rows. In the image, rows that read other kernel rows are not taken together.
using HalvesByRows = std::array<RowHalves, kMostRows + 1>;

/// Counts them. All rows that read no padding, and all work units of such rows, are counted at once.
class CountHalves {
 public:
  CountHalves(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit)
      : b_(b), unit_(unit), axis_(row_axis(p, b.geometry)) {
    const std::int64_t begin = ceil_div(axis_.pad, axis_.stride);
    whole_ = b.terms.tap_rows == 1 ? TapRange{0, b.geometry.rows}
                                   : TapRange{begin, std::min(b.geometry.rows, begin + outputs_inside(axis_))};
  }

  HalvesByRows count() {
    const std::int64_t rows = b_.geometry.rows, of_unit = b_.work.rows;
    for (std::int64_t first = 0, units; first < rows; first += units * of_unit) {
      units = first < whole_.begin ? 1 : std::max<std::int64_t>(1, (whole_.end - first) / of_unit);
      add_unit(first, std::min(first + of_unit, rows), units);
    }
    return found_;
  }

 private:
  TapRange taps_of(std::int64_t row) const { return b_.terms.tap_rows == 1 ? TapRange{0, 1} : axis_.taps_of(row); }

  /// The halves of rows [first, end), `times` as many.
  void add_unit(std::int64_t first, std::int64_t end, std::int64_t times) {
    const std::int64_t most = even_part(end - first, rows_of_half(b_, unit_, b_.work.columns));
    for (std::int64_t row = first, next; row < end; row = next) {
      const std::int64_t whole = row < whole_.begin ? 0 : (std::min(whole_.end, end) - row) / most;
      if (whole > 0) {
        add(most, taps_of(row), times * whole);
        next = row + whole * most;
        continue;
      }
      TapRange taps = taps_of(row);
      for (next = row + 1; next < std::min(end, row + most); ++next) {
        const TapRange others = taps_of(next);
        const bool same = taps.begin == others.begin && taps.end == others.end;
        if (!same && b_.input == InputPath::in_rows) break;
        taps = {std::min(taps.begin, others.begin), std::max(taps.end, others.end)};
      }
      add(next - row, taps, times);
    }
  }
  void add(std::int64_t rows, const TapRange& taps, std::int64_t halves) {
    RowHalves& sum = found_[static_cast<std::size_t>(rows)];
    sum.halves += halves;
    sum.kernel_rows += halves * (taps.end - taps.begin);
  }

  const Blocking& b_;
  const Bf16Unit& unit_;
  Axis axis_;
  TapRange whole_;  // the rows that read no padding
  HalvesByRows found_{};
};
HalvesByRows halves_by_rows(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  return CountHalves(p, b, unit).count();
}
/// Calls use(rows, RowHalves) for each number of rows that some half has.
template <class Use>
void for_rows(const HalvesByRows& all, const Use& use) {
  for (std::size_t rows = 1; rows < all.size(); ++rows) {
    if (all[rows].halves > 0) use(static_cast<double>(rows), all[rows]);
  }
}

/// Products and stores of an image and a group, staged, flat.
double flat_cycles(const Conv2dProblem& p, const Blocking& b, const Panel& panel) {
  const Geometry& g = b.geometry;
  const std::int64_t length = (b.work.rows - 1) * b.strip.columns + b.work.columns;
  const std::int64_t halves = ceil_div(length, std::int64_t{b.positions});
  const double positions = static_cast<double>(length) / static_cast<double>(halves);
  const double taps = kernel_rows_inside(p) / static_cast<double>(g.rows) * static_cast<double>(b.terms.tap_columns);
  const double stored = positions * panel.vectors * (b.work.rows > 1 ? kStoreFlat : kStore);
  return static_cast<double>(b.work.row_blocks * halves) * (kHalf + stored + taps * panel.tap(positions));
}
/// The same by rows.
double rows_cycles(const Blocking& b, const HalvesByRows& all, const Panel& panel) {
  const std::int64_t halves = ceil_div(b.work.columns, std::int64_t{b.positions});
  const double columns = static_cast<double>(b.work.columns) / static_cast<double>(halves);
  double sum = 0;
  for_rows(all, [&](double rows, const RowHalves& of) {
    const double taps = static_cast<double>(of.kernel_rows * b.terms.tap_columns);
    sum += static_cast<double>(of.halves) * (kHalf + rows * columns * panel.vectors * kStore) +
           taps * panel.tap(rows * columns);
  });
  return sum * static_cast<double>(halves);
}

/// Of an image and a group, staged.
double strip_cycles(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const Geometry& g = b.geometry;
  const bool flat = prefers_flat(b, unit, b.work.rows, b.work.columns);
  const double units = static_cast<double>(b.work.row_blocks * b.work.column_blocks);
  const HalvesByRows all = flat ? HalvesByRows{} : halves_by_rows(p, b, unit);
  const double products = sum_of_panels(b, [&](const Panel& panel) {
    const double of_rows = flat ? flat_cycles(p, b, panel) : rows_cycles(b, all, panel);
    return units * kPanel + static_cast<double>(b.work.column_blocks) * of_rows;
  });
  const double pixels = units * static_cast<double>(b.phases.count() * b.strip.rows * b.strip.columns *
                                                    (b.terms.fold > 1 ? p.stride_w : 1));
  const bool whole = g.group_c % 8 == 0;
  const double pixel = g.groups == 1 ? (whole ? kPixel : kPartPixel) : (whole ? 0 : kPartGroupPixel);
  const double blocks = static_cast<double>(g.group_c) / static_cast<double>(kChannels);
  const double staged = pixels * (pixel + blocks * kPixelBlock);
  return products + staged;
}

/// What halves of some rows cost in the image, from one column on: each of them, and each of their kernel rows.
struct RowCycles {
  double half = 0, kernel_row = 0;
};
RowCycles cycles_of_columns(const Blocking& b, const Panel& panel, double rows, const TapRange& columns) {
  const auto count = static_cast<double>(columns.end - columns.begin);
  RowCycles sum{kHalf + rows * count * panel.vectors * kStore, 0};
  const bool parts = takes_parts(b, columns, static_cast<std::int64_t>(rows));
  TapRange before{-1, -1};
  for (std::int64_t kw = 0; kw < b.terms.tap_columns; ++kw) {
    const TapRange inside = columns_inside(b, columns, kw);
    if (inside.begin == inside.end) continue;
    const bool part = parts && static_cast<double>(inside.end - inside.begin) < count;
    const double positions = rows * (part ? static_cast<double>(inside.end - inside.begin) : count);
    if (part && (inside.begin != before.begin || inside.end != before.end)) {
      sum.half += kPart + positions * panel.vectors * kPartPosition;
    }
    before = inside;
    sum.kernel_row += panel.tap(positions) + panel.pairs * kReadPair;
  }
  return sum;
}

/// Of an image and a group, read in rows.
double in_rows_cycles(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const Geometry& g = b.geometry;
  const std::int64_t step = even_part(b.work.columns, std::int64_t{b.positions});
  const HalvesByRows all = halves_by_rows(p, b, unit);
  return sum_of_panels(b, [&](const Panel& panel) {
    double sum = static_cast<double>(b.work.row_blocks) * kPanel;
    for_rows(all, [&](double rows, const RowHalves& of) {
      for (std::int64_t first = 0; first < g.columns; first += step) {
        const RowCycles cycles = cycles_of_columns(b, panel, rows, {first, std::min(first + step, g.columns)});
        sum += static_cast<double>(of.halves) * cycles.half + static_cast<double>(of.kernel_rows) * cycles.kernel_row;
      }
    });
    return sum;
  });
}

/// From the first to the last kernel column that some of these columns of output reads. None reads some of those
/// between where the image is narrower than the stride.
TapRange columns_read(const Blocking& b, const TapRange& columns) {
  const auto is_read = [&](std::int64_t tap) {
    const TapRange inside = columns_inside(b, columns, tap);
    return inside.begin < inside.end;
  };
  TapRange read{0, b.terms.tap_columns};
  while (read.end > 0 && !is_read(read.end - 1)) --read.end;
  while (read.begin < read.end && !is_read(read.begin)) ++read.begin;
  return read;
}

/// `inside`: the positions that read the image.
BorderMasks masks_of(const TapRange& inside, std::int64_t positions) {
  BorderMasks masks{};
  for (std::int64_t i = 0; i < std::min<std::int64_t>(positions, kBorderColumns); ++i) {
    const bool from_end = positions > kBorderColumns && i >= kBorderColumns / 2;
    const std::int64_t column = from_end ? positions - kBorderColumns + i : i;
    masks.column[i] = column >= inside.begin && column < inside.end ? 0xffff : 0;
  }
  return masks;
}

BorderHalf border_half(const Blocking& b, const TapRange& columns) {
  BorderHalf half{};
  half.is_at_border = std::any_of(b.column_outputs.begin(), b.column_outputs.end(), [&](const TapRange& inside) {
    return inside.begin > columns.begin || inside.end < columns.end;
  });
  if (!half.is_at_border) return half;
  const std::int64_t positions = columns.end - columns.begin;
  half.read = columns_read(b, columns);
  half.masks_are_outermost = true;
  for (std::int64_t tap = half.read.begin; tap < half.read.end; ++tap) {
    const TapRange inside = columns_inside(b, columns, tap);
    half.masks.push_back(masks_of(inside, positions));
    if (inside.begin > 1 || inside.end < positions - 1) half.masks_are_outermost = false;
  }
  half.needs_parts = positions > kBorderColumns && takes_parts(b, columns, 1);
  return half;
}

}  // namespace

void lay_out_border(Blocking& b) {
  if (b.input != InputPath::in_rows || b.terms.fold > 1) return;
  b.row_halves = ceil_div(b.work.columns, even_part(b.work.columns, b.positions));
  b.border_halves.assign(static_cast<std::size_t>(b.work.column_blocks * b.row_halves), BorderHalf{});
  for (std::int64_t block = 0; block < b.work.column_blocks; ++block) {
    const std::int64_t begin = block * b.work.columns, end = std::min(begin + b.work.columns, b.geometry.columns);
    const std::int64_t step = even_part(end - begin, b.positions);
    auto* half = b.border_halves.data() + block * b.row_halves;
    for (std::int64_t first = begin; first < end; first += step) {
      *half++ = border_half(b, {first, std::min(first + step, end)});
    }
  }
}

bool may_read_in_rows(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const Geometry& g = b.geometry;
  if (unit.loads_full_halves || b.input != InputPath::staged || b.terms.parts != 1 || g.pool != 1) return false;
  if (b.terms.gathers() || is_pointwise(p) || b.work.weights_outermost || g.groups * g.group_c != g.c) return false;
  const Axis rows = row_axis(p, g), columns = column_axis(p, g);
  const std::int64_t border = std::max(g.rows - outputs_inside(rows), g.columns - outputs_inside(columns));
  if (border > kMaxBorder || g.columns > kMaxRowColumns || p.s > kMaxKernelColumns) return false;
  // Folded columns are one run of channels: those of a single group, none of them in padding.
  if (b.terms.fold > 1 && (g.groups > 1 || outputs_inside(columns) < g.columns)) return false;
  return positions_in_l1(p) >= std::min({kFewestInL1, std::int64_t{b.positions}, g.columns});
}

std::int64_t positions_in_l1(const Conv2dProblem& p) {
  constexpr std::int64_t kOtherLines = 2;  // of weights, in those sets
  const std::int64_t pitch = p.stride_w * p.c * 2;
  const std::int64_t lines = l1_bytes() / kL1WayBytes * (kL1WayBytes / std::gcd(kL1WayBytes, pitch));
  return std::max<std::int64_t>(1, lines - kOtherLines);
}

TapRange columns_inside(const Blocking& b, const TapRange& columns, std::int64_t kernel_column) {
  const std::int64_t count = columns.end - columns.begin;
  if (b.column_outputs.empty()) return {0, count};
  const TapRange& inside = b.column_outputs[static_cast<std::size_t>(kernel_column)];
  const std::int64_t begin = std::clamp<std::int64_t>(inside.begin - columns.begin, 0, count);
  return {begin, std::clamp<std::int64_t>(inside.end - columns.begin, begin, count)};
}

bool takes_parts(const Blocking& b, const TapRange& columns, std::int64_t rows) {
  constexpr std::int64_t kSide = kBorderColumns / 2;
  const std::int64_t count = columns.end - columns.begin;
  if (count <= kBorderColumns) return takes_few_in_parts(count, rows);
  for (std::int64_t column = 0; column < b.terms.tap_columns; ++column) {
    const TapRange inside = columns_inside(b, columns, column);
    const bool none = inside.begin == inside.end;
    if (!none && (inside.begin > kSide || inside.end < count - kSide)) return true;
  }
  return false;
}

double window_cycles(const Conv2dProblem& p, const Blocking& b, const Bf16Unit& unit) {
  const double one = b.input == InputPath::in_rows ? in_rows_cycles(p, b, unit) : strip_cycles(p, b, unit);
  return static_cast<double>(b.geometry.n * b.geometry.groups) * one;
}

}  // namespace gable::cpu::bf16
