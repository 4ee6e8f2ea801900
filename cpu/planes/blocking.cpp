// See blocking.h. A strip gets 3/8 of L2, which leaves the rest to the weights and the output. Work units have up to
// 2048 positions, so that weights are used often and few rows are staged twice, and are small enough to feed every
// thread.
#include "cpu/planes/blocking.h"

#include <algorithm>
#include <numeric>

#include "cpu/common/cache.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_window.h"

namespace gable::cpu::planes {
namespace {

constexpr std::int64_t kMaxWorkPositions = 2048;
constexpr std::int64_t kMinWorkPositions = 64;
constexpr std::int64_t kFloat = sizeof(float);
/// The most panels for reading the input in place, once for each panel: with more panels, a strip in L2 is faster.
constexpr std::int64_t kPanelsInPlace = 4;
constexpr std::int64_t kLine = 16;  // elements of a cache line

/// The distinct remainders in rising order. The taps' remainders repeat after stride / gcd(stride, dilation) taps.
std::vector<std::int64_t> phases_of_axis(std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(std::min(taps, stride / std::gcd(stride, dilation))));
  for (std::size_t tap = 0; tap < found.size(); ++tap) found[tap] = static_cast<std::int64_t>(tap) * dilation % stride;
  std::sort(found.begin(), found.end());
  return found;
}

std::int64_t index_of(const std::vector<std::int64_t>& all, std::int64_t phase) {
  return std::lower_bound(all.begin(), all.end(), phase) - all.begin();
}

class Search {
 public:
  Search(const Conv2dProblem& problem, int products, const TileUnit& unit, int threads)
      : unit_(unit), threads_(threads) {
    b_.problem = with_pixels_in_a_row(problem);
    b_.terms = terms(products);
    b_.phases = {phases_of_axis(p_.r, p_.stride_h, p_.dilation_h), phases_of_axis(p_.s, p_.stride_w, p_.dilation_w)};
  }

  Blocking run() {
    choose_by_lanes();
    choose_panels();
    choose_extents();
    feed_threads();
    count_work();
    b_.strip = strip(work_.images, work_.rows, work_.columns);
    lay_out_taps();
    size_buffers();
    return std::move(b_);
  }

 private:
  Terms terms(int products) const {
    Terms t{products, parts_of(products), ceil_div(p_.group_c(), unit_.channels), 0};
    const bool pads = unit_.whole_tiles && t.steps > kBlockSteps;
    t.strip_steps = pads ? round_up(t.steps, kBlockSteps) : t.steps;
    return t;
  }

  /// Whether tiles are pixels by lanes: if rows of pixels would take more vectors in all. A tile of few accumulators
  /// waits for its products.
  void choose_by_lanes() {
    if (unit_.most_pixels == 0 || !p_.pool.none()) return;
    // Epilogue of an output, in vectors of products.
    constexpr double kStoreRows = 0.15, kStoreLanes = 0.5;
    constexpr std::int64_t kMinAccumulators = 6;
    const std::int64_t strip_columns = p_.wo + (p_.s - 1) * p_.dilation_w / p_.stride_w;
    const std::int64_t flat = ceil_div((p_.ho - 1) * strip_columns + p_.wo, unit_.positions);
    const std::int64_t rows = p_.ho * ceil_div(p_.wo, unit_.positions);
    const auto products = static_cast<double>(b_.terms.steps * p_.r * p_.s);
    const auto outputs = static_cast<double>(p_.ho * p_.wo * p_.group_k());
    const double of_rows = static_cast<double>(std::min(flat, rows) * p_.group_k()) * products + kStoreRows * outputs;
    const std::int64_t lane_vectors = ceil_div(p_.group_k(), unit_.positions);
    const std::int64_t tiles = ceil_div(p_.wo, unit_.most_pixels);
    const std::int64_t row =
        std::max(p_.wo, tiles * ceil_div(kMinAccumulators, std::min<std::int64_t>(2, lane_vectors)));
    std::int64_t tap_rows = 0;
    for (std::int64_t tap = 0; tap < p_.r; ++tap) tap_rows += row_axis(p_).outputs_inside(tap);
    const double skipped = static_cast<double>(tap_rows) / static_cast<double>(p_.ho * p_.r);
    // With one vector of lanes, the tile's broadcasts take as long as its products, or longer.
    const double broadcasts = lane_vectors > 1 ? 1.0 : unit_.multiplies_pairs() ? 1.3 : 1.1;
    const double of_lanes =
        static_cast<double>(p_.ho * row * lane_vectors) * skipped * products * broadcasts + kStoreLanes * outputs;
    b_.by_lanes = of_lanes < of_rows;
  }

  void choose_panels() {
    const std::int64_t lanes = b_.by_lanes         ? 2 * unit_.positions
                               : unit_.whole_tiles ? unit_.most_lanes
                                                   : even_part(p_.group_k(), unit_.most_lanes);
    b_.panels = {lanes, ceil_div(p_.group_k(), lanes)};
    b_.vectors = !unit_.whole_tiles && !b_.by_lanes && unit_.tile[kMaxVectors][lanes] != nullptr ? kMaxVectors : 2;
    const bool row_of_pixels = is_pointwise(p_) && p_.h == 1 && (b_.by_lanes || p_.w >= unit_.positions);
    // Tiles of pixels by lanes broadcast f32.
    const bool reads_type = p_.dtype == DType::f32 || !b_.by_lanes;
    const bool may = !unit_.multiplies_pairs() && reads_type && row_of_pixels;
    b_.in_place = may && (b_.by_lanes || b_.panels.count <= kPanelsInPlace);
    work_.panels = b_.panels.count;
    work_.weights_outermost = reads_weights_once(p_);
  }

  std::int64_t conv_rows(std::int64_t rows) const { return conv_extent(rows, p_.pool.h, p_.pool.stride_h); }
  std::int64_t conv_columns(std::int64_t columns) const { return conv_extent(columns, p_.pool.w, p_.pool.stride_w); }

  Strip strip(std::int64_t images, std::int64_t rows, std::int64_t columns) const {
    Strip s{};
    s.rows = conv_rows(rows) + (p_.r - 1) * p_.dilation_h / p_.stride_h;
    s.columns = conv_columns(columns) + (p_.s - 1) * p_.dilation_w / p_.stride_w;
    s.image = s.rows * s.columns;
    s.phase = images * s.image;
    if (b_.in_place) {
      s.step = p_.h * p_.w;
      return s;
    }
    const auto phases = static_cast<std::int64_t>(b_.phases.rows.size() * b_.phases.columns.size());
    // An odd number of lines: the same position of neighbouring steps then lies in different sets of L1.
    s.step = round_up(phases * s.phase + kLine, kLine);
    if (s.step / kLine % 2 == 0) s.step += kLine;
    s.part = b_.terms.strip_steps * s.step;
    s.floats = s.part * b_.terms.parts + kMaxPositions + kLine;
    return s;
  }
  bool fits(std::int64_t images, std::int64_t rows, std::int64_t columns) const {
    const Strip s = strip(images, rows, columns);
    const std::int64_t floats = b_.in_place ? p_.c * s.phase : s.floats;
    return floats * kFloat <= l2_bytes() * 3 / 8;
  }
  std::int64_t tile_positions() const { return b_.vectors * unit_.positions; }

  void choose_extents() {
    work_.images = 1;
    work_.rows = 1;
    work_.columns = p_.out_w();
    const std::int64_t most_columns = std::max(kMaxWorkPositions, p_.out_w() / 8);
    const auto cut = [&](std::int64_t columns) { return std::min(p_.out_w(), round_up(columns, tile_positions())); };
    if (work_.columns > most_columns) work_.columns = cut(even_part(p_.out_w(), most_columns));
    while (!fits(1, 1, work_.columns) && work_.columns > kMinWorkPositions) {
      work_.columns = cut(std::max(work_.columns / 2, kMinWorkPositions));
    }
    // First as large as fits, then cut into even parts.
    if (p_.out_h() == 1 && work_.columns < p_.out_w()) {
      while (work_.columns + tile_positions() < std::min(p_.out_w(), most_columns) &&
             fits(1, 1, work_.columns + tile_positions())) {
        work_.columns += tile_positions();
      }
      work_.columns = cut(even_part(p_.out_w(), work_.columns));
    }
    while (work_.rows < p_.out_h() && (work_.rows + 1) * work_.columns <= kMaxWorkPositions &&
           fits(1, work_.rows + 1, work_.columns)) {
      ++work_.rows;
    }
    work_.rows = even_part(p_.out_h(), work_.rows);
    if (!b_.by_lanes && !b_.in_place && work_.rows == p_.out_h() && work_.columns == p_.out_w()) choose_images();
  }

  /// Several images, if their positions together take fewer vectors.
  void choose_images() {
    const auto vectors = [&](std::int64_t images) {
      const Strip s = strip(images, work_.rows, work_.columns);
      const std::int64_t positions =
          (images - 1) * s.image + (conv_rows(work_.rows) - 1) * s.columns + conv_columns(work_.columns);
      return static_cast<double>(ceil_div(positions, unit_.positions)) / static_cast<double>(images);
    };
    constexpr double kWorthIt = 0.98;
    std::int64_t best = 1;
    for (std::int64_t images = 2; images <= std::min<std::int64_t>(p_.n, 16); ++images) {
      if (images * work_.rows * work_.columns > kMaxWorkPositions || !fits(images, work_.rows, work_.columns)) break;
      if (p_.n % images == 0 && vectors(images) < kWorthIt * vectors(best)) best = images;
    }
    work_.images = best;
  }

  std::int64_t units() const {
    return ceil_div(p_.n, work_.images) * ceil_div(p_.out_h(), work_.rows) * ceil_div(p_.out_w(), work_.columns) *
           p_.groups * ceil_div(b_.panels.count, work_.panels);
  }
  /// Halves images, then rows, then columns, then panels, whose work units stage the same strip again.
  void feed_threads() {
    if (threads_ == 1) return;
    const std::int64_t wanted = kUnitsPerThread * threads_;
    while (units() < wanted && work_.images > 1) work_.images = ceil_div(work_.images, 2);
    while (units() < wanted && work_.rows > 1 && work_.rows * work_.columns > 2 * kMinWorkPositions) {
      work_.rows = ceil_div(work_.rows, 2);
    }
    while (units() < wanted && work_.columns > 2 * kMinWorkPositions) {
      work_.columns = round_up(ceil_div(work_.columns, 2), tile_positions());
    }
    while (units() < wanted && work_.panels > 1) work_.panels = ceil_div(work_.panels, 2);
  }

  void count_work() {
    work_.image_blocks = ceil_div(p_.n, work_.images);
    work_.row_blocks = ceil_div(p_.out_h(), work_.rows);
    work_.column_blocks = ceil_div(p_.out_w(), work_.columns);
    work_.panel_blocks = ceil_div(b_.panels.count, work_.panels);
  }

  void lay_out_taps() {
    const auto column_phases = static_cast<std::int64_t>(b_.phases.columns.size());
    for (std::int64_t kh = 0; kh < p_.r; ++kh) {
      for (std::int64_t kw = 0; kw < p_.s; ++kw) {
        const std::int64_t row = kh * p_.dilation_h, column = kw * p_.dilation_w;
        const std::int64_t phase = index_of(b_.phases.rows, row % p_.stride_h) * column_phases +
                                   index_of(b_.phases.columns, column % p_.stride_w);
        b_.taps.push_back(phase * b_.strip.phase + row / p_.stride_h * b_.strip.columns + column / p_.stride_w);
      }
    }
  }

  void size_buffers() {
    const Outputs all{work_.images, conv_rows(work_.rows), conv_columns(work_.columns)};
    const std::int64_t flat = flat_positions(b_, all);
    if (b_.by_lanes) {
      b_.sums_floats = (kMaxPositions + kMaxPixels) * b_.panels.lanes + kTransposedFloats;
      b_.most_tiles = b_.most_pieces = all.images * all.rows * ceil_div(all.columns, unit_.most_pixels);
      return;
    }
    const std::int64_t lane = p_.pool.none() ? kMaxPositions : round_up(flat, kLine) + 2 * kMaxPositions;
    b_.sums_floats = b_.panels.lanes * lane + kMaxPositions;
    const std::int64_t rows = all.images * all.rows;
    // Tiles of a run: at most its whole tiles and one tile of each smaller width.
    b_.most_tiles = ceil_div(flat, unit_.positions) + 3 * rows + 3;
    b_.most_pieces = b_.most_tiles + rows;
  }

  const TileUnit& unit_;
  int threads_;
  Blocking b_{};
  const Conv2dProblem& p_ = b_.problem;
  WorkCut& work_ = b_.work;
};

}  // namespace

Blocking blocking_of(const Conv2dProblem& problem, int products, const TileUnit& unit, int threads) {
  return Search(problem, products, unit, threads).run();
}

std::int64_t flat_positions(const Blocking& b, const Outputs& o) {
  return (o.images - 1) * b.strip.image + (o.rows - 1) * b.strip.columns + o.columns;
}

bool prefers_rows(const Blocking& b, const TileUnit& unit, const Outputs& o) {
  return o.images * o.rows * ceil_div(o.columns, unit.positions) < ceil_div(flat_positions(b, o), unit.positions);
}

double vectors_of(const Blocking& b, const TileUnit& unit) {
  const Conv2dProblem& p = b.problem;
  const auto units = static_cast<double>(b.work.inputs() * p.groups);
  const Outputs o{b.work.images, conv_extent(b.work.rows, p.pool.h, p.pool.stride_h),
                  conv_extent(b.work.columns, p.pool.w, p.pool.stride_w)};
  const std::int64_t lane_vectors = ceil_div(p.group_k(), unit.positions);
  if (b.by_lanes) return units * static_cast<double>(o.images * o.rows * o.columns * lane_vectors);
  const std::int64_t flat = ceil_div(flat_positions(b, o), unit.positions);
  const std::int64_t rows = o.images * o.rows * ceil_div(o.columns, unit.positions);
  const std::int64_t lanes = unit.whole_tiles ? b.panels.count * b.panels.lanes : p.group_k();
  return units * static_cast<double>(std::min(flat, rows) * lanes);
}

}  // namespace gable::cpu::planes
