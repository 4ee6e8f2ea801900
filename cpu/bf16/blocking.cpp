// Chooses the cut. The strip gets 3/8 of L2, which leaves the rest to a panel of weights and the output. Work units
// have up to 2048 positions, so that a panel is used often and few rows are staged twice, and are small enough to feed
// every thread.
#include "cpu/bf16/blocking.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu/bf16/axis.h"
#include "cpu/bf16/in_rows.h"
#include "cpu/bf16/positions.h"
#include "cpu/bf16/work_unit.h"
#include "cpu/common/cache.h"
#include "cpu/common/estimate.h"
#include "cpu/common/grid_time.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace bf16 {
namespace {

constexpr std::int64_t kMaxPositions = 2048;
constexpr std::int64_t kMaxColumns = 128;
constexpr std::int64_t kGatheredPositions = 1024;
// Halves have at least this many positions, if the row has them: with fewer, products wait for weights.
constexpr int kFewestPositions = 10;
constexpr std::int64_t kFewestStridedColumns = 7;
constexpr std::int64_t kFewestHeldHalves = 3;
// Of groups that a unit which loads full halves stages together, and of their strips.
constexpr std::int64_t kMaxGroups = 16, kMaxGroupBytes = 256 << 10;
// Cycles: two halves' products in a step, the fixed cost of a panel, and the shortest work unit that is worth starting.
constexpr std::int64_t kStepCycles = 64, kPanelCycles = 100, kMinUnitCycles = 4000;
// The fixed time of a tile, to start and to store it, in positions.
constexpr std::int64_t kTileCost = 6;
constexpr std::int64_t kMaxThreadBytes = 2 << 20;
constexpr std::int64_t kMaxTaps = 1 << 20;  // most entries of a plan's table, which a query builds too
constexpr std::int64_t kBf16 = 2;
constexpr std::int64_t kLineBytes = 64;
constexpr double kMaxIdlePositions = 1.15;  // ratio of all positions to those with outputs; staging costs the same

/// Cache lines of L1 that addresses `pitch` bytes apart can fill.
std::int64_t l1_lines(std::int64_t pitch) {
  return kL1WayBytes / std::gcd(kL1WayBytes, pitch) * (l1_bytes() / kL1WayBytes);
}

/// Keeps the best of the cuts that a search tries in `work`: the first one until another one costs less.
class BestCut {
 public:
  /// `cost`: of the first cut, or less, for others that must be clearly better.
  BestCut(WorkCut& work, double cost) : work_(work), best_(work), least_(cost) {}
  void keep_better(double cost) {
    if (cost >= least_) return;
    best_ = work_;
    least_ = cost;
  }
  double least() const { return least_; }
  void take() { work_ = best_; }

 private:
  WorkCut& work_;
  WorkCut best_;
  double least_;
};

/// The order of a cut's work units: see work_unit_at().
UnitAxes<5> axes_of_units(const WorkCut& cut) {
  const std::int64_t blocks = cut.row_blocks * cut.column_blocks * cut.group_blocks * cut.panel_blocks;
  const std::int64_t image_blocks = cut.count / blocks;
  if (cut.weights_outermost)
    return {cut.group_blocks, cut.panel_blocks, image_blocks, cut.row_blocks, cut.column_blocks};
  return {image_blocks, cut.row_blocks, cut.column_blocks, cut.group_blocks, cut.panel_blocks};
}

/// Fills one Blocking. The steps depend on one another in the order of run().
class Search {
 public:
  /// `in_rows`: tiles read the image row by row; precondition: may_read_in_rows().
  Search(const Conv2dProblem& problem, int products, const Bf16Unit& unit, int threads, bool in_rows)
      : p_(problem), unit_(unit), threads_(threads), in_rows_(in_rows) {
    b_.geometry = geometry_of(problem, unit);
    b_.terms = terms_of(problem, b_.geometry, products, unit);
    b_.phases = phases_of(problem, b_.terms);
    work_.groups = 1;
  }

  Blocking run() {
    b_.multiplies_panels = takes_panels();
    choose_panels();
    b_.positions = choose_positions();
    if (in_rows_) b_.positions = static_cast<int>(std::min<std::int64_t>(b_.positions, positions_in_l1(p_)));
    b_.half_floats = b_.positions > kHalfPositions ? 2 * kHalfFloats : kHalfFloats;
    choose_input();
    if (b_.input != InputPath::by_images) choose_rows_and_columns();
    feed_threads();
    choose_groups();
    count_work();
    place_weights();
    b_.panel_halves = halves_of_panels();
    lay_out_strip();
    choose_prefetches();
    return std::move(b_);
  }

 private:
  // ---- Sizes of the cut so far.
  StripLayout layout(InputPath path) const { return {p_, g_, b_.terms, b_.phases, path}; }
  StripShape shape() const { return layout(b_.input).shape(work_.rows, work_.columns); }
  std::int64_t thread_bytes() const {
    const bool in_image = b_.input == InputPath::in_image || b_.input == InputPath::in_rows;
    const std::int64_t strip = in_image ? 0 : strip_elements(shape(), b_.terms);
    return head_floats(unit_) * static_cast<std::int64_t>(sizeof(float)) + work_.groups * strip * kBf16;
  }
  /// A unit that takes one half at a time reads a panel's weights once for many halves. Where L2 does not keep them,
  /// more rows are worth more than room for weights.
  bool strip_fits() const {
    const bool many_rows = !unit_.loads_full_halves && weight_bytes() > 2 * l2_bytes();
    return thread_bytes() <= (many_rows ? l2_bytes() * 3 / 4 : l2_bytes() * 3 / 8);
  }
  std::int64_t panel_bytes() const { return b_.terms.panel_bytes(); }
  std::int64_t weight_bytes() const { return work_.panels * panel_bytes(); }
  std::int64_t column_step() const { return g_.pool * b_.positions; }

  // ---- Panels of a work unit.
  void choose_panels() {
    work_.weights_outermost = reads_weights_once(p_);
    work_.panels = work_.weights_outermost ? panels_in_l3() : g_.panels;
  }
  /// Panels whose weights every thread can keep in the last level until all positions have used them.
  std::int64_t panels_in_l3() const { return std::clamp<std::int64_t>(l3_bytes() / 8 / panel_bytes(), 1, g_.panels); }

  bool takes_panels() const {
    return unit_.panels != nullptr && b_.terms.products == 1 && (p_.r * p_.s == 1 || b_.terms.gathers_windows()) &&
           g_.pool == 1 && p_.activation != Activation::tanh;
  }

  // ---- Positions of a half.
  /// A panel of one vector has registers for twice as many positions. Rows of up to that many outputs are one half,
  /// where two short ones would wait for the latency of their products.
  bool takes_narrow_halves() const {
    return unit_.narrow_positions > 0 && g_.pool == 1 && g_.panels == 1 && g_.group_k <= kVector;
  }
  int choose_positions() {
    if (!unit_.loads_full_halves) return takes_narrow_halves() ? unit_.narrow_positions : unit_.positions;
    if (b_.multiplies_panels) return positions_of_panels();
    b_.positions = positions_of_rows();
    const bool window = b_.terms.tap_count() > 1 && b_.terms.fold == 1 && b_.terms.parts == 1 && g_.pool == 1;
    return !window || has_many_borders() || may_read_in_image() ? b_.positions : positions_of_window();
  }
  bool has_many_borders() const {
    return g_.rows > outputs_inside(row_axis(p_, g_)) + kMaxBorder ||
           g_.columns > outputs_inside(column_axis(p_, g_)) + kMaxBorder;
  }
  /// Halves of 14 divide rows of 14, 28 and 56 outputs without a tail.
  int positions_of_rows() const {
    const StripShape row = layout(InputPath::staged).shape(1, g_.columns);
    int best = unit_.positions;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const int positions : {16, 14}) {
      const auto cost = [&](std::int64_t count) { return ceil_div(count, positions) * (positions + kHalfCost); };
      const std::int64_t by_rows = g_.rows * cost(g_.columns);
      const std::int64_t flat = cost((g_.rows - 1) * row.columns + g_.columns);
      const std::int64_t all = g_.pool == 2 ? by_rows : std::min(by_rows, flat);
      if (all >= least) continue;
      best = positions;
      least = all;
    }
    return best;
  }
  /// Of a window that halves of 14 or 16 would not read in the image.
  int positions_of_window() {
    const StripShape whole = layout(InputPath::staged).shape(g_.rows, g_.columns);
    int best = 16;
    double least = staged_cycles(b_, whole, best);
    const auto take = [&](int positions, double cycles) {
      if (cycles >= least) return;
      best = positions;
      least = cycles;
    };
    take(14, staged_cycles(b_, whole, 14));
    for (b_.positions = 14; b_.positions >= kFewestPositions; --b_.positions) {
      if (may_read_in_image()) take(b_.positions, in_image_cycles(p_, b_, b_.positions));
    }
    return best;
  }
  /// Any number of positions, since all of a half's positions lie in one run: four halves of 13 take 7x7 pixels.
  int positions_of_panels() const {
    const bool by_rows = !is_pointwise(p_) && reads_single_pixels();
    const std::int64_t length = by_rows ? g_.columns : g_.rows * g_.columns;
    const auto most = static_cast<int>(std::min<std::int64_t>(unit_.positions, length));
    int best = most;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int positions = most; positions >= std::min(most, kFewestPositions); --positions) {
      const std::int64_t halves = ceil_div(length, positions) * (by_rows ? g_.rows : 1);
      const std::int64_t cost = halves * positions + ceil_div(halves, 2) * kTileCost;
      if (cost >= least) continue;
      best = positions;
      least = cost;
    }
    return best;
  }

  /// Halves of a tile of panels. Weights stay in registers where there are enough halves to make up for their way
  /// there.
  int halves_of_panels() const {
    if (!b_.multiplies_panels || b_.terms.blocks < kHeldBlocks || b_.terms.blocks > kMostHeldBlocks) return 2;
    const std::int64_t halves = work_.rows * ceil_div(work_.columns, std::int64_t{b_.positions});
    return halves < kFewestHeldHalves ? 2 : static_cast<int>(even_part(halves, kMaxPanelHalves));
  }

  // ---- Where tiles read their input.
  void choose_input() {
    work_.images = 1;
    if (in_rows_) {
      b_.input = InputPath::in_rows;
      b_.terms.last_is_single = b_.terms.channels % 2 == 1;
    } else if (is_pointwise(p_) || reads_single_pixels()) {
      b_.input = may_read_in_place() ? InputPath::in_place : InputPath::staged;
    } else if (may_read_in_image()) {
      b_.input = InputPath::in_image;
    } else if (may_read_by_images()) {
      b_.input = InputPath::by_images;
      if (!choose_rows_by_images()) b_.input = InputPath::staged;
    }
    b_.weights.chunk = choose_chunk();
    if (b_.input != InputPath::by_images) return;
    work_.images = kHalfPositions;
    b_.positions = static_cast<int>(std::min<std::int64_t>(p_.n, kHalfPositions));
  }

  bool strides_single_pixels() const {
    return p_.r * p_.s == 1 && g_.pool == 1 && outputs_inside(row_axis(p_, g_)) >= p_.ho &&
           outputs_inside(column_axis(p_, g_)) >= p_.wo && p_.pad_top == 0 && p_.pad_left == 0;
  }
  /// 1x1 with a stride and without padding, where tiles may load single pixels. Rows of few outputs are better staged,
  /// to make full halves.
  bool reads_single_pixels() const {
    if (!strides_single_pixels()) return false;
    if (unit_.loads_full_halves) return b_.multiplies_panels && p_.wo >= kFewestStridedColumns;
    const int whole = std::min(b_.positions, unit_.positions);
    return even_part(p_.wo, whole) * 4 >= whole * 3;
  }

  bool may_read_in_place() const {
    // The last of the merged groups may have fewer channels, which tiles would read all the same.
    const bool whole_groups = g_.groups * g_.group_c == g_.c;
    const bool whole_blocks =
        whole_groups &&
        (unit_.loads_full_halves ? g_.group_c % 2 == 0 : g_.group_c % 2 == 0 || b_.terms.last_is_single);
    // A set of L1 holds fewer lines than a tile reads.
    const bool aliased = !unit_.loads_full_halves && shares_a_set(1, p_.c, kBf16);
    return b_.terms.parts == 1 && whole_blocks && !aliased;
  }

  bool may_read_in_image() const {
    const std::int64_t columns = outputs_inside(column_axis(p_, g_));
    const std::int64_t rows = outputs_inside(row_axis(p_, g_));
    if (!unit_.loads_full_halves || b_.terms.parts > 1 || b_.terms.fold > 1 || b_.terms.gathers() ||
        g_.group_c % 2 != 0 || g_.c % g_.group_c != 0) {
      return false;
    }
    if (std::min(rows, columns) < b_.positions || work_.weights_outermost) return false;
    if (g_.pool == 2 && (p_.ho > rows || p_.wo > columns)) return false;
    const auto tiled = static_cast<double>(round_up(columns, b_.positions));
    if (tiled > kMaxIdlePositions * static_cast<double>(columns)) return false;
    // A tile's lines of one block of channels stay in L1 from tap to tap.
    const std::int64_t lines = (2 + (p_.r - 1) * p_.dilation_h) * (b_.positions + (p_.s - 1) * p_.dilation_w);
    if (lines * 4 > l1_lines(p_.stride_w * p_.c * kBf16) * 3 || weight_bytes() > l2_bytes() * 3 / 4) return false;
    return b_.positions < kUsualPositions || g_.pool == 2 || has_many_borders() || !is_faster_staged();
  }

  /// Whether flat tiles of a strip take so much less time than those of an image's regions, whose last halves overlap
  /// and whose borders make tiles of their own, that staging pays.
  bool is_faster_staged() const {
    const StripShape whole = layout(InputPath::staged).shape(g_.rows, g_.columns);
    return std::min(staged_cycles(b_, whole, 16), staged_cycles(b_, whole, kUsualPositions)) <
           in_image_cycles(p_, b_, b_.positions);
  }

  /// Not for several products a term: they take so long that reading weights again costs little. Not for a single tap
  /// with padding: some outputs then read no input, and the strip has no position for them. Each thread stages its own
  /// strip, so each thread must use it for several panels.
  bool may_read_by_images() const {
    const bool one_tap_padded = (p_.r == 1 && p_.pad_top > 0) || (p_.s == 1 && p_.pad_left > 0);
    if (!unit_.loads_full_halves || b_.terms.parts > 1 || g_.pool > 1 || b_.terms.fold > 1 || b_.terms.gathers() ||
        one_tap_padded) {
      return false;
    }
    if (work_.weights_outermost) return false;
    const std::int64_t groups_of_images = ceil_div(p_.n, kHalfPositions);
    const auto idle = static_cast<double>(groups_of_images * kHalfPositions) / static_cast<double>(p_.n);
    return idle <= kMaxIdlePositions && weight_bytes() >= l2_bytes() / 2 &&
           groups_of_images * g_.groups * g_.panels >= 4 * threads_;
  }

  /// As many rows as leave room in L2 for the weights of two chunks. Several taps share the halo of rows and may use
  /// more of L2; for one tap, half of it is faster. False if no number of rows saves many reads of weights.
  bool choose_rows_by_images() {
    const std::int64_t chunk = choose_chunk();
    work_.columns = g_.columns;
    const std::int64_t room = b_.terms.tap_count() == 1 ? l2_bytes() / 2 : l2_bytes() / 8 * 7;
    const auto fits = [&](std::int64_t rows) {
      work_.rows = rows;
      return thread_bytes() <= kMaxThreadBytes && thread_bytes() + 2 * chunk * panel_bytes() <= room;
    };
    std::int64_t rows = std::min(g_.rows, kMaxPositions);
    while (rows > 0 && !fits(rows)) --rows;
    if (rows == 0) return false;
    work_.rows = even_part(g_.rows, rows);
    return 2 * ceil_div(g_.rows, work_.rows) <= kHalfPositions;
  }

  std::int64_t choose_chunk() const {
    if (b_.terms.tap_count() > 1 || g_.pool > 1) return 1;
    if (weight_bytes() <= l2_bytes() / 2 && b_.input != InputPath::by_images) return work_.panels;
    return unit_.loads_full_halves ? std::clamp<std::int64_t>(l2_bytes() / 8 / panel_bytes(), 1, work_.panels) : 1;
  }

  // ---- Rows and columns of a work unit.
  void choose_rows_and_columns() {
    if (b_.input == InputPath::in_image) {
      work_.columns = g_.columns;
      const std::int64_t most_rows = std::max<std::int64_t>(2, kMaxPositions / g_.columns);
      work_.rows = round_up(even_part(g_.rows, most_rows), 2);
      return;
    }
    if (b_.input == InputPath::in_rows) {
      work_.columns = g_.columns;
      work_.rows = even_part(g_.rows, std::clamp(rows_in_l2(), std::int64_t{1}, g_.rows));
      return;
    }
    // Folded rows are short, and neighbouring work units have little staged input in common.
    const std::int64_t positions = b_.terms.fold > 1            ? 2 * kMaxPositions
                                   : b_.terms.gathers_windows() ? kGatheredPositions
                                                                : kMaxPositions;
    const bool gathers_rows = b_.terms.gathers() && !b_.terms.gathers_windows();
    const std::int64_t most = gathers_rows ? columns_of_gathered_rows() : std::max(kMaxColumns, positions / g_.rows);
    work_.rows = g_.pool;
    work_.columns = std::min(g_.columns, round_up(even_part(g_.columns, most), column_step()));
    while (!strip_fits() && work_.columns > column_step()) {
      work_.columns = round_up(ceil_div(work_.columns, 2), column_step());
    }
    const std::int64_t most_rows = std::max(g_.pool, std::min(positions / work_.columns, rows_of_groups()));
    while (work_.rows < std::min(g_.rows, most_rows)) {
      work_.rows += g_.pool;
      if (strip_fits()) continue;
      work_.rows -= g_.pool;
      break;
    }
    work_.rows = round_up(even_part(g_.rows, work_.rows), g_.pool);
  }

  /// Columns of gathered kernel rows that fill half of L1 with the rows of the strip that a tile's two rows read.
  std::int64_t columns_of_gathered_rows() const {
    const StripShape two = layout(InputPath::staged).shape(2, 1);
    return std::max(column_step(), l1_bytes() / 2 / (b_.phases.count() * two.rows * kLineBytes));
  }

  /// Rows of output whose input L2 keeps until all panels have read it.
  std::int64_t rows_in_l2() const {
    const std::int64_t row_bytes = p_.stride_h * g_.w * p_.c * kBf16;
    const std::int64_t kept = g_.panels * g_.groups > 1 ? l2_bytes() / 2 / row_bytes : g_.rows;
    return std::min(kMaxPositions / g_.columns, kept);
  }
  /// The next group reads other channels of the same cache lines: as many rows as keep their lines in L2 until then.
  std::int64_t rows_of_groups() const {
    if (g_.groups == 1) return g_.rows;
    const std::int64_t row_bytes = p_.stride_h * g_.w * p_.c * kBf16;
    return std::max(4 * g_.pool, l2_bytes() / 2 / row_bytes);
  }

  // ---- Enough work units for all threads.
  std::int64_t units() const {
    return ceil_div(g_.n, work_.images) * ceil_div(g_.rows, work_.rows) * ceil_div(g_.columns, work_.columns) *
           ceil_div(g_.groups, work_.groups) * ceil_div(g_.panels, work_.panels);
  }
  /// Halves rows first, which reads the least input twice; then columns; then panels, whose work units stage the same
  /// strip again. By images, each work unit stages a large strip, and only panels are halved.
  void feed_threads() {
    if (threads_ == 1) return;
    if (b_.input == InputPath::by_images) {
      while (units() < threads_ && work_.panels > 1) work_.panels = ceil_div(work_.panels, 2);
      return;
    }
    if (b_.multiplies_panels && g_.rows == 1 && !b_.terms.gathers()) return feed_threads_panels();
    const WorkCut whole = work_;
    const std::int64_t wanted = kUnitsPerThread * threads_;
    while (units() < wanted && work_.rows > 4 * g_.pool) {
      work_.rows = round_up(ceil_div(work_.rows, 2), g_.pool);
    }
    while (units() < wanted && work_.columns > 4 * column_step()) {
      work_.columns = round_up(ceil_div(work_.columns, 2), column_step());
    }
    while (units() < wanted && work_.panels > 2) work_.panels = ceil_div(work_.panels, 2);
    if (!unit_.loads_full_halves) return feed_threads_evenly(whole);
    // A thread without a unit saves the others nothing. Weights beyond L1 are read faster where each thread reads a
    // part of them.
    if (weight_bytes() > l1_bytes()) {
      while (units() < threads_ && work_.panels > 1) work_.panels = ceil_div(work_.panels, 2);
    }
    if (b_.input == InputPath::staged || b_.input == InputPath::in_place) cut_panels_first(whole);
  }

  /// Replaces the cut by halving, which cuts rows first, where L2 would not keep the weights that a thread then reads:
  /// panels first, in the order of work units that makes each thread read and stage the fewest bytes.
  void cut_panels_first(const WorkCut& whole) {
    if (bytes_of_thread().weights <= l2_bytes() / 2) return;
    BestCut best(work_, bytes_of_thread().all());
    const std::int64_t wanted = kUnitsPerThread * threads_;
    work_ = whole;
    while (units() < wanted && work_.panels > 1) work_.panels = ceil_div(work_.panels, 2);
    while (units() < wanted && work_.rows > 4 * g_.pool) work_.rows = round_up(ceil_div(work_.rows, 2), g_.pool);
    for (const bool outermost : {whole.weights_outermost, true}) {
      work_.weights_outermost = outermost;
      best.keep_better(bytes_of_thread().all());
    }
    best.take();
  }

  /// What the thread with the most bytes reads, and stages in its strip.
  struct ThreadBytes {
    std::int64_t weights, input, staged;
    double all() const { return static_cast<double>(weights + input + staged); }
  };
  ThreadBytes bytes_of_thread() {
    count_work();
    const std::int64_t blocks = work_.group_blocks * work_.panel_blocks;
    const UnitOrder order{work_.count / blocks, blocks, work_.weights_outermost};
    const std::int64_t input = work_.images * source_size(row_axis(p_, g_), work_.rows) *
                               source_size(column_axis(p_, g_), work_.columns) * g_.group_c * work_.groups * kBf16;
    ThreadBytes most{};
    for (int share = 0; share < threads_; ++share) {
      const std::int64_t first = first_of_share(work_.count, share, threads_);
      const std::int64_t end = first_of_share(work_.count, share + 1, threads_);
      if (first == end) continue;
      const BlocksRead read = blocks_read(order, first, end);
      const std::int64_t stages = order.weights_outermost && read.inputs > 1 ? end - first : read.inputs;
      const ThreadBytes bytes{read.weights * weight_bytes() * work_.groups, read.inputs * input,
                              b_.input == InputPath::staged ? stages * input : 0};
      if (bytes.all() > most.all()) most = bytes;
    }
    return most;
  }

  /// Replaces the cut by halving with another cut of `whole` if that one is clearly faster. Only for units that take
  /// one half at a time, since these take any number of positions. Columns are cut if there are few rows.
  void feed_threads_evenly(const WorkCut& whole) {
    constexpr double kClearly = 0.95;
    const std::int64_t wanted = kUnitsPerThread * threads_;
    const std::int64_t row_blocks = ceil_div(g_.rows, whole.rows), column_blocks = ceil_div(g_.columns, whole.columns);
    const std::int64_t most_rows = std::max(row_blocks, std::min(g_.rows / g_.pool, wanted));
    const std::int64_t most_columns = g_.rows < threads_ ? std::max(column_blocks, wanted) : column_blocks;
    BestCut best(work_, kClearly * busiest_cycles(std::numeric_limits<double>::infinity()));
    for (std::int64_t rows = row_blocks; rows <= most_rows; ++rows) {
      work_.rows = round_up(ceil_div(g_.rows, rows), g_.pool);
      if (ceil_div(g_.rows, work_.rows) < rows) continue;
      for (std::int64_t i = 0; i <= 2 * (most_columns - column_blocks); ++i) {
        // Equal columns, or whole halves.
        const std::int64_t columns = column_blocks + (i + 1) / 2, step = i % 2 == 1 ? column_step() : g_.pool;
        work_.columns = i == 0 ? whole.columns : round_up(ceil_div(g_.columns, columns), step);
        if (i > 0 && work_.columns < kFewestPositions) break;
        for (std::int64_t blocks = 1; blocks <= std::min(whole.panels, wanted); ++blocks) {
          work_.panels = ceil_div(whole.panels, blocks);
          if (units() > std::max(wanted, row_blocks * column_blocks)) break;
          best.keep_better(busiest_cycles(best.least()));
        }
      }
    }
    best.take();
  }

  /// Cycles of the thread with the most work; infinite if they are not below `enough`.
  double busiest_cycles(double enough) {
    count_work();
    b_.strip = shape();
    if (work_.count == 1) return cycles_of(work_unit_at(b_, 0));
    const double region = region_cycles(threads_);
    const auto work = [&](std::int64_t unit) { return cycles_of(work_unit_at(b_, unit)); };
    return region + grid_time(threads_, axes_of_units(work_), work, enough - region);
  }

  double cycles_of(const WorkUnit& work) const {
    // Cycles; of a pixel, also of part of 16 bytes, of its 32 channels, and of an output pixel.
    constexpr double kStagedPixel = 1.5, kPartPixel = 18, kStagedBlock = 8, kReadBlock = 2, kOutputPixel = 4;
    constexpr double kPartHalf = 1.1;  // times the products of a position of a whole half
    const bool flat = prefers_flat(b_, unit_, work.rows, work.columns);
    const std::int64_t length = flat ? (work.rows - 1) * b_.strip.columns + work.columns : work.columns;
    const std::int64_t runs = flat ? 1 : work.rows;
    const double part = length % b_.positions == 0 ? 1 : kPartHalf;
    const double blocks = static_cast<double>(b_.terms.channels) / static_cast<double>(kChannels);
    const double steps = blocks * static_cast<double>(b_.terms.tap_count());
    const double panel = static_cast<double>(runs * length) * steps * unit_.costs.position * part +
                         static_cast<double>(runs * ceil_div(length, std::int64_t{b_.positions})) *
                             (unit_.costs.tile + steps * unit_.costs.step);
    const std::int64_t pixels =
        source_size(row_axis(p_, g_), work.rows) * source_size(column_axis(p_, g_), work.columns);
    const double pixel = b_.terms.fold > 1 || g_.group_c % 8 == 0 ? kStagedPixel : kPartPixel;
    const double input = b_.input == InputPath::in_place || b_.input == InputPath::in_rows
                             ? blocks * kReadBlock
                             : pixel + blocks * kStagedBlock;
    const bool half = g_.lanes_of(work.group, work.end_panel - 1) <= kVector;
    const double panels = static_cast<double>(work.end_panel - work.first_panel) - (half ? 0.5 : 0);
    return static_cast<double>(work.groups) * (panel * panels + static_cast<double>(pixels) * input +
                                               static_cast<double>(work.rows * work.columns) * kOutputPixel) +
           unit_.costs.start;
  }

  /// Cuts the pixels into equal shares, of at least two tiles if the panels then still feed all threads: a thread that
  /// has only one tile reads all weights for it. If there are too few pixels, threads get different panels.
  void feed_threads_panels() {
    const WorkCut whole = work_;
    const std::int64_t tile = 2 * b_.positions, tiles = ceil_div(g_.columns, tile) * g_.groups;
    const std::int64_t tile_cycles = work_.panels * (b_.terms.blocks * kStepCycles + kPanelCycles);
    const std::int64_t most = std::max<std::int64_t>(1, tiles * tile_cycles / kMinUnitCycles / threads_);
    const std::int64_t wanted = threads_ * std::min(kUnitsPerThread, most);
    const std::int64_t least_tiles = tiles * work_.panels / 2 >= wanted ? 2 : 1;
    work_.columns = std::min(work_.columns, std::max(least_tiles, ceil_div(tiles, wanted)) * tile);
    const bool fed = units() >= threads_ && weight_bytes() <= l1_bytes() * 2 / 3;
    if (!fed || !panels_share_lines()) {
      work_.panels = ceil_div(work_.panels, std::min(work_.panels, ceil_div(wanted, units())));
    }
    if (panels_share_lines() && g_.groups == 1) even_panels(whole);
  }

  /// Replaces the cut by another one of `whole` if that one is clearly faster. Only where panels share lines: elsewhere
  /// the cut above is faster than what the model finds.
  void even_panels(const WorkCut& whole) {
    constexpr double kClearly = 0.95;
    const std::int64_t tile = 2 * b_.positions, tiles = ceil_div(g_.columns, tile);
    BestCut best(work_, kClearly * time_of_panels(whole.panels, std::numeric_limits<double>::infinity()));
    const std::int64_t most = std::min(ceil_div(whole.columns, tile), 2 * tiles / threads_ + 1);
    for (std::int64_t of_unit = 1; of_unit <= most; ++of_unit) {
      work_.columns = std::min(whole.columns, of_unit * tile);
      for (std::int64_t blocks = 1; blocks <= whole.panels; ++blocks) {
        work_.panels = ceil_div(whole.panels, blocks);
        if (units() > 2 * kUnitsPerThread * threads_) break;
        best.keep_better(time_of_panels(whole.panels, best.least()));
      }
    }
    best.take();
  }

  /// Cycles of the busiest thread; infinite if they are not below `enough`. kSharedLine: of a pixel whose line threads
  /// with other panels write too, so that it goes from core to core; the best of 5, 20 and 60 on 12 threads of a Xeon
  /// with AMX. kStart, of a unit, is a guess: so much less than kMinUnitCycles that it decides between equal cuts
  /// alone.
  double time_of_panels(std::int64_t all_panels, double enough) const {
    constexpr double kStart = 400, kSharedLine = 20;
    const std::int64_t tile = 2 * b_.positions, panel_blocks = ceil_div(all_panels, work_.panels);
    const double shared = panel_blocks > 1 ? kSharedLine : 0;
    const auto work = [&](std::int64_t unit) {
      const std::int64_t first = unit / panel_blocks * work_.columns;
      const std::int64_t columns = std::min(work_.columns, g_.columns - first);
      const std::int64_t panels = std::min(work_.panels, all_panels - unit % panel_blocks * work_.panels);
      const std::int64_t steps = panels * b_.terms.blocks, tiles = ceil_div(columns, tile);
      // The first tile waits for the weights.
      const std::int64_t cycles = tiles * (steps * kStepCycles + panels * kPanelCycles) + steps * kStepCycles / 2;
      return static_cast<double>(cycles) + kStart + shared * static_cast<double>(columns);
    };
    return grid_time(threads_, UnitAxes<2>{ceil_div(g_.columns, work_.columns), panel_blocks}, work, enough);
  }

  /// Whether threads that compute different panels of a pixel write to the same cache line of y.
  bool panels_share_lines() const { return p_.k * kBf16 % kLineBytes != 0; }

  // ---- Groups of a work unit.
  /// Neighbouring groups lie in the same cache lines, which L1 keeps while a row of each is staged.
  void choose_groups() {
    if (b_.input != InputPath::staged || b_.multiplies_panels || work_.panels < g_.panels) return;
    const std::int64_t wanted = std::min(g_.groups, groups_together());
    while (work_.groups < wanted) {
      ++work_.groups;
      if (groups_fit() && (threads_ == 1 || units() >= kUnitsPerThread * threads_)) continue;
      --work_.groups;
      break;
    }
    if (unit_.loads_full_halves) work_.groups = even_part(g_.groups, work_.groups);
  }
  /// Groups in the same lines; of a unit that loads full halves also those whose epilogues then run between the next
  /// group's products.
  std::int64_t groups_together() const {
    constexpr std::int64_t kLineChannels = kLineBytes / kBf16;
    return unit_.loads_full_halves ? kMaxGroups : kLineChannels / g_.group_c;
  }
  bool groups_fit() const { return strip_fits() && (!unit_.loads_full_halves || thread_bytes() <= kMaxGroupBytes); }

  // ---- What follows from the cut.
  void count_work() {
    work_.row_blocks = ceil_div(g_.rows, work_.rows);
    work_.column_blocks = ceil_div(g_.columns, work_.columns);
    work_.panel_blocks = ceil_div(g_.panels, work_.panels);
    work_.group_blocks = ceil_div(g_.groups, work_.groups);
    work_.count = units();
  }
  void place_weights() {
    WeightsResidency& w = b_.weights;
    w.fit_l2 = weight_bytes() <= l2_bytes();
    w.chunk = std::min(w.chunk, work_.panels);
    w.from_last_level = !w.fit_l2 || b_.input == InputPath::by_images || (w.chunk > 1 && w.chunk < work_.panels);
    const std::int64_t alternating = b_.input == InputPath::in_image ? work_.panels : w.chunk;
    w.fit_l1 = panel_bytes() * alternating <= l1_bytes() / 3 || reuses_window();
  }
  /// Whether so many tiles of a work unit use the weights of one window that L1 should keep them, beside less input.
  bool reuses_window() const {
    constexpr std::int64_t kManyTiles = 6;
    return unit_.loads_full_halves && b_.terms.tap_count() > 1 && work_.panels == 1 &&
           panel_bytes() <= l1_bytes() / 2 && work_.rows * work_.columns >= kManyTiles * 2 * kHalfPositions;
  }
  void choose_prefetches() {
    // Several products a term leave time for prefetches that find their lines in L2.
    const auto prefetches = [&](std::int64_t elements) {
      const std::int64_t share = elements * static_cast<std::int64_t>(size_of(p_.dtype)) / threads_;
      return b_.terms.products > 1 || share > l2_bytes() / 2;
    };
    b_.prefetched = {prefetches(p_.x_elements()), prefetches(p_.y_elements())};
  }
  void lay_out_strip() {
    b_.strip = shape();
    b_.tap_offsets = layout(b_.input).tap_offsets(b_.strip);
    b_.thread_bytes = static_cast<std::size_t>(round_up(thread_bytes(), 64));
    if (b_.input != InputPath::in_rows || b_.terms.fold > 1) return;
    const Axis columns = column_axis(p_, g_);
    for (std::int64_t column = 0; column < p_.s; ++column) {
      const std::int64_t first = column * columns.dilation - columns.pad;
      b_.column_outputs.push_back(taps_inside(first, columns.size, columns.stride, g_.columns));
    }
  }

  const Conv2dProblem& p_;
  const Bf16Unit& unit_;
  int threads_;
  bool in_rows_;
  Blocking b_{};
  const Geometry& g_ = b_.geometry;
  WorkCut& work_ = b_.work;
};

std::string one_decimal(double value) {
  const auto tenths = static_cast<std::int64_t>(value * 10 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

/// prefers_flat() of a unit that takes runs: positions of rows run their epilogue in registers, flat ones by way of
/// memory, and few positions wait for the latency of their products.
bool prefers_flat_runs(const Blocking& b, const Bf16Unit& unit, std::int64_t rows, std::int64_t columns) {
  constexpr double kEpiloguePairs = 8;  // pairs of channels whose products take as long as an epilogue in memory
  const std::int64_t fewest = b.positions > kHalfPositions ? 9 : 5;
  const auto cost = [&](std::int64_t positions, std::int64_t halves) {
    return static_cast<double>(std::max(positions, halves * fewest) + kHalfCost * halves);
  };
  const std::int64_t most = b.positions, flat = (rows - 1) * b.strip.columns + columns;
  const std::int64_t by_rows = ceil_div(rows, rows_of_half(b, unit, columns)) * ceil_div(columns, most);
  const auto pairs = static_cast<double>(ceil_div(b.terms.channels, std::int64_t{2}) * b.terms.tap_count());
  return cost(flat, ceil_div(flat, most)) + static_cast<double>(flat) * kEpiloguePairs / pairs <
         cost(rows * columns, by_rows);
}

}  // namespace

Blocking blocking_of(const Conv2dProblem& p, int products, const Bf16Unit& unit, int threads) {
  Blocking b = Search(p, products, unit, threads, false).run();
  if (unit.windows == WindowInput::strip || !may_read_in_rows(p, b, unit)) return b;
  Blocking rows = Search(p, products, unit, threads, true).run();
  if (unit.windows == WindowInput::image) return rows;
  return window_cycles(p, rows, unit) < window_cycles(p, b, unit) ? rows : b;
}

std::int64_t rows_of_half(const Blocking& b, const Bf16Unit& unit, std::int64_t columns) {
  constexpr std::int64_t kOfBase = 7, kMostBases = 4;  // positions of a run that share an address, and addresses
  if (!unit.takes_runs || b.geometry.pool > 1) return 1;
  const std::int64_t by_bases =
      columns <= kMostBases ? kOfBase * (kMostBases / columns) : kMostBases / ceil_div(columns, kOfBase);
  return std::max<std::int64_t>(1, std::min(by_bases, b.positions / columns));
}

bool prefers_flat(const Blocking& b, const Bf16Unit& unit, std::int64_t rows, std::int64_t columns) {
  if (b.geometry.pool == 2) return false;
  if (rows == 1) return b.input != InputPath::in_rows;
  // Rows in the image are no run of positions, nor are strided pixels.
  if (b.input == InputPath::in_place || b.input == InputPath::in_rows) return false;
  if (unit.takes_runs) return prefers_flat_runs(b, unit, rows, columns);
  const std::int64_t most = b.positions, flat = (rows - 1) * b.strip.columns + columns;
  const auto cost = [&](std::int64_t positions) {
    const std::int64_t halves = ceil_div(positions, most);
    return (unit.loads_full_halves ? halves * most : positions) + kHalfCost * halves;
  };
  return cost(flat) < rows * cost(columns);
}

}  // namespace bf16

std::string bf16_refusal(const Conv2dProblem& p, int products, const Bf16Unit& unit) {
  if (!unit.missing.empty()) return unit.missing;
  if (!p.nhwc) return "layout nchw: it takes nhwc";
  if (!p.pool.none() && !p.pool.is_2x2()) {
    return "a pool of " + std::to_string(p.pool.h) + "x" + std::to_string(p.pool.w) + " with stride " +
           std::to_string(p.pool.stride_h) + "x" + std::to_string(p.pool.stride_w) + ": it fuses 2x2 with stride 2x2";
  }
  if (p.r * p.s > bf16::kMaxTaps)
    return std::to_string(p.r * p.s) + " filter taps; its table holds " + std::to_string(bf16::kMaxTaps);
  const bf16::Blocking b = bf16::blocking_of(p, products, unit, 1);
  // The direct kernel pads channels to whole vectors as well; the depthwise kernels do not.
  const double lanes = static_cast<double>(p.group_k()) / static_cast<double>(round_up(p.group_k(), bf16::kVector));
  const double times = bf16::padding_factor(p, b.geometry, b.terms, unit) * (is_depthwise(p) ? 1.0 : lanes);
  const double most = p.dtype == DType::f16 ? 2 * unit.most_padding / products : unit.most_padding;
  if (times > most) {
    return std::to_string(p.group_c()) + " input and " + std::to_string(p.group_k()) +
           " output channels a group: padding makes it " + bf16::one_decimal(times) + " times the work, and beyond " +
           bf16::one_decimal(most) + " f32 arithmetic is faster";
  }
  if (b.thread_bytes > bf16::kMaxThreadBytes) {
    return "its smallest unit of work stages " + std::to_string(b.thread_bytes) + " bytes; at most " +
           std::to_string(bf16::kMaxThreadBytes) + " a thread are allowed";
  }
  return unit.refusal();  // asks the system, so last
}

}  // namespace gable::cpu
