// Chooses the cut. The strip gets 3/8 of L2, so that a panel of weights and the output have the rest; units are made of
// up to 2048 positions, so that a panel is used often a pass and few rows are staged twice, and small enough to feed
// every thread.
#include "cpu/bf16/blocking.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu/common/cache.h"
#include "cpu/common/tiling.h"
#include "cpu/direct/conv2d_blocking.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kMostPositions = 2048;
constexpr std::int64_t kMostColumns = 128;
constexpr std::int64_t kSlackPositions = 64;  // a tile may read past the strip's end
constexpr std::int64_t kMostThreadBytes = 2 << 20;
constexpr std::int64_t kBf16 = 2;
constexpr std::int64_t kLine = 64;
constexpr double kMostIdlePositions = 1.15;  // of all positions to those with outputs; staging costs about as much

/// The residues modulo `stride` of the taps' source offsets.
std::vector<std::int64_t> phases(std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  std::vector<std::int64_t> found;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t phase = tap * dilation % stride;
    if (std::find(found.begin(), found.end(), phase) == found.end()) found.push_back(phase);
  }
  return found;
}

/// Lines of L1 that addresses `pitch` bytes apart can fill.
std::int64_t l1_lines(std::int64_t pitch) {
  return kL1WayBytes / std::gcd(kL1WayBytes, pitch) * (l1_bytes() / kL1WayBytes);
}

class Search {
 public:
  Search(const Conv2dProblem& problem, const Bf16Unit& unit, int threads, Bf16Blocking& blocking)
      : p_(problem), unit_(unit), threads_(threads), b_(blocking) {}

  void run() {
    describe_problem();
    choose_unit();
    feed_threads();
    lay_out();
  }

 private:
  std::int64_t row_taps() const { return p_.r; }
  std::int64_t column_taps() const { return b_.fold > 1 ? 1 : p_.s; }
  std::int64_t strip_rows() const {
    if (b_.by_images) return source_size(b_.unit_rows, p_.r, p_.stride_h, p_.dilation_h, p_.h);
    return b_.unit_rows + (p_.r - 1) * p_.dilation_h / p_.stride_h;
  }
  std::int64_t strip_columns(std::int64_t columns) const {
    if (b_.by_images) return source_size(columns, p_.s, p_.stride_w, p_.dilation_w, p_.w);
    if (b_.fold > 1) return columns - 1 + ceil_div(b_.fold, p_.stride_w);
    return columns + (column_taps() - 1) * p_.dilation_w / p_.stride_w;
  }
  std::int64_t strip_columns() const { return strip_columns(b_.unit_columns); }
  std::int64_t phase_count() const { return static_cast<std::int64_t>(b_.row_phases.size() * b_.column_phases.size()); }
  std::int64_t plane_positions() const {
    const std::int64_t pixels = strip_rows() * strip_columns();
    return b_.by_images ? apart(pixels * kHalfPositions) : phase_count() * pixels;
  }
  /// So many positions, or a few more, that the same pixels of two blocks of channels are not in the same sets of L1.
  static std::int64_t apart(std::int64_t positions) {
    constexpr std::int64_t kWay = kL1WayBytes / kLine;
    return positions + (kWay + kWay / 2 - positions % kWay) % kWay;
  }
  /// Rows (columns) of an image that some rows of output read; one tap reads one a row.
  static std::int64_t source_size(std::int64_t outs, std::int64_t taps, std::int64_t stride, std::int64_t dilation,
                                  std::int64_t size) {
    return taps == 1 ? outs : std::min(size, (outs - 1) * stride + (taps - 1) * dilation + 1);
  }
  std::int64_t strip_elements() const {
    return plane_positions() * b_.position * b_.blocks * b_.parts + kSlackPositions * kBf16Channels;
  }
  std::int64_t thread_bytes() const {
    const std::int64_t strip = b_.in_image ? 0 : strip_elements();
    return kBf16HeadFloats * static_cast<std::int64_t>(sizeof(float)) + strip * kBf16;
  }
  bool fits() const { return thread_bytes() <= l2_bytes() * 3 / 8; }

  /// Panels whose weights every thread can keep in the last level until all positions have used them.
  std::int64_t panels_in_l3() const { return std::clamp<std::int64_t>(l3_bytes() / 8 / panel_bytes(), 1, b_.panels); }

  void describe_problem() {
    const bool pointwise = is_pointwise(p_);
    b_.n = pointwise ? 1 : p_.n;
    b_.h = pointwise ? 1 : p_.h;
    b_.w = pointwise ? p_.n * p_.h * p_.w : p_.w;
    b_.pool = p_.pool.none() ? 1 : 2;
    b_.rows = pointwise ? 1 : p_.out_h() * b_.pool;
    b_.columns = pointwise ? b_.w : p_.out_w() * b_.pool;
    b_.groups = p_.groups;
    b_.group_c = p_.c / p_.groups;
    b_.group_k = p_.k / p_.groups;
    b_.pixel = unit_.reads_whole_half ? round_up(b_.group_c, 2) : b_.group_c;
    b_.fold = b_.pixel * p_.s <= kBf16Channels && p_.dilation_w == 1 ? p_.s : 1;
    b_.position = b_.fold > 1 ? b_.pixel * p_.stride_w : kBf16Channels;
    const std::int64_t channels = b_.fold > 1 ? b_.pixel * b_.fold : b_.group_c;
    b_.blocks = ceil_div(channels, kBf16Channels);
    b_.last_pairs = static_cast<int>(ceil_div(channels - (b_.blocks - 1) * kBf16Channels, 2));
    b_.last_is_single = b_.fold > 1 && channels % 2 == 1;
    b_.tap_count = row_taps() * column_taps();
    b_.row_phases = phases(row_taps(), p_.stride_h, p_.dilation_h);
    b_.column_phases = phases(column_taps(), p_.stride_w, p_.dilation_w);
    b_.panels = ceil_div(b_.group_k, kBf16Lanes);
    b_.weights_once = reads_weights_once(p_);
    b_.unit_panels = b_.weights_once ? panels_in_l3() : b_.panels;
    const bool whole_blocks = unit_.reads_whole_half ? b_.group_c % kBf16Channels == 0 : b_.group_c % 2 == 0;
    // Positions a multiple of 4 KiB apart share one set of L1, which holds fewer lines than a tile of sums reads.
    const bool aliased = !unit_.reads_whole_half && p_.c * kBf16 % kL1WayBytes == 0;
    b_.positions = choose_positions();
    b_.in_image = !pointwise && reads_in_image();
    b_.in_place = pointwise && b_.parts == 1 && whole_blocks && !aliased;
    b_.by_images = !pointwise && !b_.in_image && may_read_by_images();
    b_.by_images = b_.by_images && choose_unit_of_images();  // which lays the strip out by images
    b_.chunk = choose_chunk();
    b_.images = b_.by_images ? kHalfPositions : 1;
    if (b_.by_images) b_.positions = static_cast<int>(std::min<std::int64_t>(p_.n, kHalfPositions));
  }

  std::int64_t panel_bytes() const { return b_.blocks * b_.tap_count * b_.parts * kWeightBlock * kBf16; }

  std::int64_t choose_chunk() const {
    if (b_.tap_count > 1 || b_.pool > 1) return 1;
    if (unit_weight_bytes() <= l2_bytes() / 2 && !b_.by_images) return b_.unit_panels;
    return unit_.reads_whole_half ? std::clamp<std::int64_t>(l2_bytes() / 8 / panel_bytes(), 1, b_.unit_panels) : 1;
  }

  /// Several products a term take so long that reading weights again hardly shows. One tap with padding has outputs
  /// that read nothing, for which the strip has no place. Each thread stages a strip of its own, so each should find a
  /// few panels to use it for.
  bool may_read_by_images() const {
    const bool one_tap_padded = (p_.r == 1 && p_.pad_top > 0) || (p_.s == 1 && p_.pad_left > 0);
    if (!unit_.reads_whole_half || b_.parts > 1 || b_.pool > 1 || b_.fold > 1 || one_tap_padded) return false;
    if (b_.weights_once) return false;
    const std::int64_t groups_of_images = ceil_div(p_.n, kHalfPositions);
    const auto idle = static_cast<double>(groups_of_images * kHalfPositions) / static_cast<double>(p_.n);
    return idle <= kMostIdlePositions && unit_weight_bytes() >= l2_bytes() / 2 &&
           groups_of_images * b_.groups * b_.panels >= 4 * threads_;
  }

  /// As many rows a unit as leave L2 room for the chunk at hand and the next. Rows share the halo of several taps, so
  /// that these take more of L2; for one tap, half of it is faster. False if no cut saves much reading of weights.
  bool choose_unit_of_images() {
    b_.chunk = choose_chunk();
    b_.unit_columns = b_.columns;
    const std::int64_t room = b_.tap_count == 1 ? l2_bytes() / 2 : l2_bytes() / 8 * 7;
    const auto fits = [&](std::int64_t rows) {
      b_.unit_rows = rows;
      return thread_bytes() <= kMostThreadBytes && thread_bytes() + 2 * b_.chunk * panel_bytes() <= room;
    };
    std::int64_t rows = std::min(b_.rows, kMostPositions);
    while (rows > 0 && !fits(rows)) --rows;
    if (rows == 0) return false;
    b_.unit_rows = even_part(b_.rows, rows);
    return 2 * ceil_div(b_.rows, b_.unit_rows) <= kHalfPositions;
  }

  /// Rows of 14, 28 and 56 outputs are cut without rest into halves of 14, which a unit multiplies faster than 16.
  int choose_positions() const {
    if (!unit_.reads_whole_half) return unit_.positions;
    int best = unit_.positions;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const int positions : {16, 14}) {
      const auto cost = [&](std::int64_t count) { return ceil_div(count, positions) * (positions + kHalfCost); };
      const std::int64_t by_rows = b_.rows * cost(b_.columns);
      const std::int64_t flat = cost((b_.rows - 1) * strip_columns(b_.columns) + b_.columns);
      const std::int64_t all = b_.pool == 2 ? by_rows : std::min(by_rows, flat);
      if (all >= least) continue;
      best = positions;
      least = all;
    }
    return best;
  }

  /// Outputs along an axis whose taps all fall inside the image.
  static std::int64_t inside(std::int64_t size, std::int64_t taps, std::int64_t stride, std::int64_t dilation,
                             std::int64_t pad) {
    const std::int64_t room = size - 1 - (taps - 1) * dilation + pad;
    return room < 0 ? 0 : room / stride - ceil_div(pad, stride) + 1;
  }
  bool reads_in_image() const {
    const std::int64_t columns = inside(p_.w, p_.s, p_.stride_w, p_.dilation_w, p_.pad_left);
    const std::int64_t rows = inside(p_.h, p_.r, p_.stride_h, p_.dilation_h, p_.pad_top);
    if (!unit_.reads_whole_half || b_.parts > 1 || b_.group_c % kBf16Channels != 0) return false;
    if (std::min(rows, columns) < b_.positions || b_.weights_once) return false;
    if (b_.pool == 2 && (p_.ho > rows || p_.wo > columns)) return false;
    const auto tiled = static_cast<double>(round_up(columns, b_.positions));
    if (tiled > kMostIdlePositions * static_cast<double>(columns)) return false;
    // A tile's lines of one block of channels stay in L1 from tap to tap.
    const std::int64_t lines = (2 + (p_.r - 1) * p_.dilation_h) * (b_.positions + (p_.s - 1) * p_.dilation_w);
    return lines * 4 <= l1_lines(p_.stride_w * p_.c * kBf16) * 3 && unit_weight_bytes() <= l2_bytes() * 3 / 4;
  }

  std::int64_t column_step() const { return b_.pool * b_.positions; }

  void choose_unit() {
    if (b_.by_images) return;
    if (b_.in_image) {
      b_.unit_columns = b_.columns;
      const std::int64_t most_rows = std::max<std::int64_t>(2, kMostPositions / b_.columns);
      b_.unit_rows = round_up(even_part(b_.rows, most_rows), 2);
      return;
    }
    // Folded rows are short, and most of what a unit stages it stages for itself alone.
    const std::int64_t positions = b_.fold > 1 ? 2 * kMostPositions : kMostPositions;
    const std::int64_t most = std::max(kMostColumns, positions / b_.rows);
    b_.unit_rows = b_.pool;
    b_.unit_columns = std::min(b_.columns, round_up(even_part(b_.columns, most), column_step()));
    while (!fits() && b_.unit_columns > column_step()) {
      b_.unit_columns = round_up(ceil_div(b_.unit_columns, 2), column_step());
    }
    const std::int64_t most_rows = std::max(b_.pool, positions / b_.unit_columns);
    while (b_.unit_rows < std::min(b_.rows, most_rows)) {
      b_.unit_rows += b_.pool;
      if (fits()) continue;
      b_.unit_rows -= b_.pool;
      break;
    }
    b_.unit_rows = round_up(even_part(b_.rows, b_.unit_rows), b_.pool);
  }

  std::int64_t units() const {
    return ceil_div(b_.n, b_.images) * ceil_div(b_.rows, b_.unit_rows) * ceil_div(b_.columns, b_.unit_columns) *
           b_.groups * ceil_div(b_.panels, b_.unit_panels);
  }
  /// Rows first, since halving them re-reads least; then lanes, which stage the same strip again. By images, each unit
  /// stages much.
  void feed_threads() {
    if (threads_ == 1) return;
    if (b_.by_images) {
      while (units() < threads_ && b_.unit_panels > 1) b_.unit_panels = ceil_div(b_.unit_panels, 2);
      return;
    }
    const std::int64_t wanted = kUnitsPerThread * threads_;
    while (units() < wanted && b_.unit_rows > 4 * b_.pool) {
      b_.unit_rows = round_up(ceil_div(b_.unit_rows, 2), b_.pool);
    }
    while (units() < wanted && b_.unit_columns > 4 * column_step()) {
      b_.unit_columns = round_up(ceil_div(b_.unit_columns, 2), column_step());
    }
    while (units() < wanted && b_.unit_panels > 2) b_.unit_panels = ceil_div(b_.unit_panels, 2);
  }

  void lay_out() {
    b_.row_blocks = ceil_div(b_.rows, b_.unit_rows);
    b_.column_blocks = ceil_div(b_.columns, b_.unit_columns);
    b_.panel_tiles = ceil_div(b_.panels, b_.unit_panels);
    b_.units = units();
    b_.weights_fit_l2 = unit_weight_bytes() <= l2_bytes();
    b_.chunk = std::min(b_.chunk, b_.unit_panels);
    b_.weights_stream = !b_.weights_fit_l2 || b_.by_images || (b_.chunk > 1 && b_.chunk < b_.unit_panels);
    b_.weights_fit_l1 = panel_bytes() * (b_.in_image ? b_.unit_panels : b_.chunk) <= l1_bytes() / 3;
    b_.strip_rows = strip_rows();
    b_.strip_columns = strip_columns();
    b_.a_block = plane_positions() * b_.position;
    b_.a_part = b_.blocks * b_.a_block;
    b_.thread_bytes = static_cast<std::size_t>(round_up(thread_bytes(), 64));
    for (std::int64_t kh = 0; kh < row_taps(); ++kh) {
      for (std::int64_t kw = 0; kw < column_taps(); ++kw) b_.taps.push_back(tap_offset(kh, kw));
    }
  }

  std::int64_t unit_weight_bytes() const { return b_.unit_panels * panel_bytes(); }

  static std::int64_t index_of(const std::vector<std::int64_t>& all, std::int64_t phase) {
    return std::find(all.begin(), all.end(), phase) - all.begin();
  }
  std::int64_t tap_offset(std::int64_t kh, std::int64_t kw) const {
    const std::int64_t row = kh * p_.dilation_h, column = kw * p_.dilation_w;
    if (b_.by_images) return (row * b_.strip_columns + column) * kHalfPositions * kBf16Channels;
    if (b_.in_image) return (row * p_.w + column) * p_.c;
    const std::int64_t phase =
        index_of(b_.row_phases, row % p_.stride_h) * static_cast<std::int64_t>(b_.column_phases.size()) +
        index_of(b_.column_phases, column % p_.stride_w);
    const std::int64_t position = (phase * b_.strip_rows + row / p_.stride_h) * b_.strip_columns + column / p_.stride_w;
    return position * b_.position;
  }

  const Conv2dProblem& p_;
  const Bf16Unit& unit_;
  int threads_;
  Bf16Blocking& b_;
};

std::string one_decimal(double value) {
  const auto tenths = static_cast<std::int64_t>(value * 10 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

/// By how much zeros in channels and lanes multiply the products.
double padding(const Bf16Blocking& b, const Conv2dProblem& p, const Bf16Unit& unit) {
  const std::int64_t last = unit.reads_whole_half ? kBf16Channels : 2 * b.last_pairs;
  const std::int64_t channels = ((b.blocks - 1) * kBf16Channels + last) * b.tap_count;
  const double of_channels = static_cast<double>(channels) / static_cast<double>(b.group_c * p.r * p.s);
  return of_channels * static_cast<double>(b.panels * kBf16Lanes) / static_cast<double>(b.group_k);
}

}  // namespace

Bf16Blocking bf16_blocking(const Conv2dProblem& p, int products, const Bf16Unit& unit, int threads) {
  Bf16Blocking b{};
  b.products = products;
  b.parts = parts_of(products);
  Search(p, unit, threads, b).run();
  return b;
}

std::string bf16_refusal(const Conv2dProblem& p, int products, const Bf16Unit& unit) {
  if (!unit.missing.empty()) return unit.missing;
  if (!p.nhwc) return "layout nchw: it takes nhwc";
  if (!p.pool.none() && !p.pool.is_2x2()) {
    return "a pool of " + std::to_string(p.pool.h) + "x" + std::to_string(p.pool.w) + " with stride " +
           std::to_string(p.pool.stride_h) + "x" + std::to_string(p.pool.stride_w) + ": it fuses 2x2 with stride 2x2";
  }
  const Bf16Blocking b = bf16_blocking(p, products, unit, 1);
  const double times = padding(b, p, unit);
  const double most = p.dtype == DType::f16 ? unit.most_padding / products : unit.most_padding;
  if (times > most) {
    return std::to_string(b.group_c) + " input and " + std::to_string(b.group_k) +
           " output channels a group: padding makes it " + one_decimal(times) + " times the work, and beyond " +
           one_decimal(most) + " f32 arithmetic is faster";
  }
  if (b.thread_bytes > kMostThreadBytes) {
    return "its smallest unit of work stages " + std::to_string(b.thread_bytes) + " bytes; at most " +
           std::to_string(kMostThreadBytes) + " a thread are allowed";
  }
  return "";
}

}  // namespace gable::cpu
