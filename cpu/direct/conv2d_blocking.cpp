// Chooses the blocking. Budgets of one thread, in parts of L2: weights of a panel and chunk 3/8, staged input 3/8,
// partial sums and strip 1/4 together. Units are as large as 16 register tiles of pixels, so that a panel's weights are
// used 16 times per pass through L2, and small enough to give every thread at least four. If an image is too small for
// that, a unit has several. With a single tap every panel reads the whole input again, so the input stays within 1/2 of
// L2. For that a unit gets fewer pixels, down to 4 tiles. Chunks would do it too, but their partial sums cost more than
// reading weights from L3 more often.
#include "cpu/direct/conv2d_blocking.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu/common/cache.h"
#include "cpu/common/grid_time.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kInLanes = 16;  // one cache line of f32 NHWC input
/// With 16 lanes, a run of a 9 x 2 tile takes 144 cycles and one of a 6 x 2 tile 100, and the end of its loop would
/// take a tenth of that.
constexpr std::int64_t kInLanesOfLongRuns = 64;
constexpr int kTilePixelsOfManyRegisters = 14;
constexpr std::int64_t kTilesPerUnit = 16;
constexpr std::int64_t kMinTilesPerUnit = 4;
constexpr std::int64_t kFloat = sizeof(float);

/// The sizes that the search below varies.
struct Candidate {
  std::int64_t rows, pixels, chunk;
};

/// The order of units: see UnitGrid::at().
UnitAxes<5> axes_of_units(const UnitGrid& u) {
  if (u.weights_once) return {u.groups, u.out_tiles, u.image_blocks, u.row_blocks, u.pixel_blocks};
  return {u.image_blocks, u.row_blocks, u.pixel_blocks, u.groups, u.out_tiles};
}

class Search {
 public:
  Search(const Conv2dKernels& kernels, int threads, Conv2dBlocking& blocking)
      : p_(blocking.problem), kernels_(kernels), threads_(threads), b_(blocking) {}

  void run() {
    Candidate candidate =
        shrink_to_fit({1, std::min(p_.out_w(), pixel_target() * (taps() > 1 ? 2 : 1)), first_chunk()});
    grow_rows(candidate);
    b_.unit_lanes = kPartitionLanes;
    feed_threads(candidate);
    narrow_lanes(candidate);
    b_.channels.chunk = candidate.chunk;
    b_.channels.chunks = ceil_div(p_.group_c(), candidate.chunk);
    const bool weights_once = b_.units.weights_once;
    b_.units = grid(candidate, images(candidate));
    b_.units.weights_once = weights_once;
    // No pairs if two rows have more pixels than L1 has ways: pixels a multiple of 4 KiB apart share one set.
    const std::int64_t pair_pixels = b_.input.near_pixels ? kMaxNearPairPixels : kernels_.max_image_pair_pixels;
    const bool short_rows =
        !b_.tile.row_pair && p_.out_w() <= pair_pixels && 2 * p_.out_w() <= b_.tile.pixels && p_.pool.none();
    b_.tile.image_pair = short_rows && b_.units.images > 1;
    b_.tile.two_rows = short_rows && b_.units.images == 1 && b_.units.rows > 1;
    const Candidate chosen{b_.units.rows, b_.units.pixels, candidate.chunk};
    b_.input.axes = axes(chosen);
    lay_out(chosen);
  }

 private:
  std::int64_t taps() const { return p_.r * p_.s; }
  std::int64_t pixel_target() const {
    const std::int64_t target = kTilesPerUnit * kernels_.max_pixels;
    if (taps() > 1) return target;
    const std::int64_t cached = l2_bytes() / 2 / (first_chunk() * kFloat);
    return std::clamp<std::int64_t>(cached, kMinTilesPerUnit * kernels_.max_pixels, target);
  }
  std::int64_t conv_rows(const Candidate& c) const { return conv_extent(c.rows, p_.pool.h, p_.pool.stride_h); }
  std::int64_t conv_pixels(const Candidate& c) const { return conv_extent(c.pixels, p_.pool.w, p_.pool.stride_w); }
  StripAxes axes(const Candidate& c) const {
    const AxisMap rows = smaller_axis_map(conv_rows(c), p_.r, p_.stride_h, p_.dilation_h);
    // A gather puts the pixels of neighbouring outputs a whole row of taps apart.
    if (b_.input.near_pixels) return {rows, {p_.stride_w, p_.dilation_w, p_.s, p_.stride_w, p_.dilation_w, false}};
    return {rows, smaller_axis_map(conv_pixels(c), p_.s, p_.stride_w, p_.dilation_w)};
  }
  std::int64_t positions(const Candidate& c) const {
    const StripAxes strip = axes(c);
    return strip.rows.positions(conv_rows(c)) * strip.columns.positions(conv_pixels(c));
  }
  std::int64_t tile_lanes() const { return std::min(b_.unit_lanes, round_up(p_.group_k(), kernels_.lanes)); }

  std::int64_t stage_floats(const Candidate& c) const {
    return b_.input.never_staged
               ? 0
               : positions(c) * b_.unit_groups * round_up(std::min(c.chunk, p_.group_c()), b_.channels.in_lanes);
  }
  /// The part of the image that taps read in place, once for each panel. Narrow units keep it in L2.
  std::int64_t image_floats(const Candidate& c) const {
    return b_.input.never_staged && taps() > 1 ? positions(c) * std::min(c.chunk, p_.group_c()) : 0;
  }
  std::int64_t partial_floats(const Candidate& c) const {
    return c.chunk < p_.group_c() ? conv_rows(c) * conv_pixels(c) * tile_lanes() : 0;
  }
  std::int64_t strip_floats(const Candidate& c) const {
    if (b_.tile.stores) return 0;
    return (b_.tile.row_pair ? c.rows * c.pixels : conv_rows(c) * conv_pixels(c)) * tile_lanes();
  }
  bool fits(const Candidate& c) const {
    return stage_floats(c) * kFloat <= l2_bytes() * 3 / 8 &&
           (partial_floats(c) + strip_floats(c)) * kFloat <= l2_bytes() / 4;
  }

  std::int64_t first_chunk() const {
    const std::int64_t channel_bytes = taps() * b_.tile.panel_lanes * kFloat;
    std::int64_t most = l2_bytes() * 3 / 8 / channel_bytes;
    if (taps() == 1) most = std::min(most, l2_bytes() / 2 / (kMinTilesPerUnit * kernels_.max_pixels * kFloat));
    most = std::max(most, b_.channels.in_lanes);
    return round_up(even_part(p_.group_c(), most), b_.channels.in_lanes);
  }

  bool can_halve_tiles(const Candidate& c) const { return c.pixels > 2 * kernels_.max_pixels; }
  void halve_tiles(Candidate& c) const { c.pixels = half_of_tiles(c.pixels, kernels_.max_pixels); }

  /// Narrows the unit to a few tiles of pixels, then the chunk, then the pixels further. If the kernel window is too
  /// large even then, the workspace grows.
  Candidate shrink_to_fit(Candidate c) const {
    while (image_floats(c) * kFloat > l2_bytes() * 3 / 8 && can_halve_tiles(c)) halve_tiles(c);
    while (!fits(c)) {
      if (can_halve_tiles(c)) {
        halve_tiles(c);
      } else if (c.chunk > b_.channels.in_lanes) {
        c.chunk = round_up(ceil_div(c.chunk, 2), b_.channels.in_lanes);
      } else if (c.pixels > 1) {
        c.pixels = ceil_div(c.pixels, 2);
      } else {
        break;
      }
    }
    return c;
  }

  void grow_rows(Candidate& c) const {
    while (c.rows < p_.out_h()) {
      const Candidate taller{c.rows + 1, c.pixels, c.chunk};
      const bool in_l1 = b_.input.near_pixels && stage_floats(taller) * kFloat <= l1_bytes() * 3 / 4;
      if (!fits(taller) || (conv_rows(c) * conv_pixels(c) >= pixel_target() && !in_l1)) return;
      c = taller;
    }
  }

  /// Images of a unit: several if one image has fewer pixels than a unit should have, as long as a chunk of their input
  /// fits 1/2 of L2. If several, an even number.
  std::int64_t images(const Candidate& c) const {
    if (!b_.input.never_staged || !b_.tile.stores || c.rows < p_.out_h() || c.pixels < p_.out_w()) return 1;
    const std::int64_t wanted = round_up(ceil_div(pixel_target(), conv_rows(c) * conv_pixels(c)), 2);
    const std::int64_t cached = l2_bytes() / 2 / (p_.h * p_.w * std::min(c.chunk, p_.group_c()) * kFloat);
    const std::int64_t fed = threads_ == 1 ? p_.n : units(c) / units_wanted(threads_);
    return even_part(p_.n, std::clamp<std::int64_t>(std::min({wanted, cached, fed}), 1, p_.n));
  }

  UnitGrid grid(const Candidate& c, std::int64_t images) const {
    UnitGrid units = unit_grid(p_, images, c.rows, c.pixels);
    units.groups = ceil_div(p_.groups, b_.unit_groups);
    units.out_tiles = ceil_div(p_.group_k(), b_.unit_lanes);
    return units;
  }
  std::int64_t units(const Candidate& c) const {
    return p_.n * ceil_div(p_.out_h(), c.rows) * ceil_div(p_.out_w(), c.pixels) * p_.groups *
           ceil_div(p_.group_k(), b_.unit_lanes);
  }
  /// For several threads: chooses the rows of a unit (its pixels if there are too few rows) and the order of units that
  /// give the busiest thread the least work. Neighbouring groups stay together, since they share cache lines of a
  /// pixel.
  void feed_threads(Candidate& c) {
    b_.units.weights_once = reads_weights_once(p_);
    if (threads_ == 1) return;
    const std::int64_t wanted = units_wanted(threads_);
    const Candidate whole = c;
    const bool may_follow_weights = p_.groups == 1, follow_weights = b_.units.weights_once;
    double least = busiest(c, follow_weights, std::numeric_limits<double>::infinity());
    const auto try_cut = [&](const Candidate& tried) {
      for (const bool once : {follow_weights, may_follow_weights}) {
        const double found = busiest(tried, once, least);
        if (found >= least) continue;
        c = tried;
        b_.units.weights_once = once;
        least = found;
      }
    };
    const std::int64_t first = ceil_div(p_.out_h(), whole.rows);
    for (std::int64_t blocks = first; blocks <= std::min(p_.out_h(), std::max(first, wanted)); ++blocks) {
      const Candidate tried{ceil_div(p_.out_h(), blocks), whole.pixels, whole.chunk};
      if (blocks > first && units(tried) > 2 * wanted) return;
      try_cut(tried);
    }
    for (Candidate tried{1, whole.pixels, whole.chunk}; can_halve_tiles(tried) && units(tried) < wanted;) {
      tried.pixels = p_.pool.none() ? ceil_div(tried.pixels, 2) : half_of_tiles(tried.pixels, kernels_.max_pixels);
      try_cut(tried);
    }
  }

  /// Small images have fewer units than there are threads, which then read all weights of a few: narrower out tiles, in
  /// whole panels and cache lines, leave each thread a part of the weights.
  void narrow_lanes(const Candidate& c) const {
    const auto line = static_cast<std::int64_t>(64 / size_of(p_.dtype));
    while (units(c) < threads_ && b_.unit_lanes > std::max(b_.tile.panel_lanes, line)) b_.unit_lanes /= 2;
  }

  /// The time of the busiest thread, in pixels of a vector of lanes; infinite if it is not below `enough`.
  double busiest(const Candidate& c, bool weights_once, double enough) const {
    UnitGrid units = grid(c, 1);
    units.weights_once = weights_once;
    const auto work = [&](std::int64_t unit) {
      const UnitPlace place = units.at(unit);
      const std::int64_t rows = std::min(units.rows, p_.out_h() - place.first_row);
      const std::int64_t pixels = std::min(units.pixels, p_.out_w() - place.first_pixel);
      const std::int64_t lanes = std::min(b_.unit_lanes, p_.group_k() - place.out_tile * b_.unit_lanes);
      return time_of(rows, pixels) * static_cast<double>(ceil_div(lanes, kernels_.lanes));
    };
    return grid_time(threads_, axes_of_units(units), work, enough);
  }

  /// The time of a unit's rows of pixels, in pixels: each tile waits for its weights, even with few pixels, and each
  /// unit for the weights of its first tile.
  double time_of(std::int64_t rows, std::int64_t pixels) const {
    constexpr double kTilePixels = 1, kMinTile = 8, kUnitPixels = 4;
    const bool pairs = p_.n == 1 && 2 * p_.out_w() <= b_.tile.pixels && p_.pool.none();
    const auto row_of = [&](std::int64_t length) {
      const auto tiles = static_cast<double>(ceil_div(length, b_.tile.pixels));
      return std::max(static_cast<double>(length), kMinTile * tiles) + kTilePixels * tiles;
    };
    const double paired = pairs ? static_cast<double>(rows / 2) * row_of(2 * pixels) : 0;
    return paired + static_cast<double>(pairs ? rows % 2 : rows) * row_of(pixels) + kUnitPixels;
  }

  void lay_out(const Candidate& c) const {
    WorkspaceParts& parts = b_.workspace;
    parts.partial = line_floats(stage_floats(c));
    parts.above = parts.partial + line_floats(b_.units.images * partial_floats(c));
    parts.strip = parts.above + line_floats(b_.tile.row_pair ? b_.tile.pixels * b_.tile.panel_lanes : 0);
    parts.block = parts.strip + line_floats(strip_floats(c));
    parts.bias = parts.block + (b_.tile.stores ? 0 : 2 * kStoreBlockFloats);
    parts.floats = parts.bias + kPartitionLanes;
  }

  const Conv2dProblem& p_;
  const Conv2dKernels& kernels_;
  int threads_;
  Conv2dBlocking& b_;
};

/// The lanes of an in tile. In tiles are nearly equal; if there are several, each is a whole number of steps of the
/// tile's unrolled loop. Large tiles of a single tap prefetch the next pixels with each line of channels.
std::int64_t even_in_lanes(const Conv2dProblem& p, const Conv2dKernels& kernels) {
  constexpr std::int64_t kUnrolled = 4;
  const bool lines = p.r * p.s == 1 && kernels.max_pixels >= kTilePixelsOfManyRegisters;
  const std::int64_t channels = p.group_c();
  const std::int64_t even = even_part(channels, lines ? kInLanes : kInLanesOfLongRuns);
  return even == channels ? channels : round_up(even, kUnrolled);
}

/// Whether no tap has padding at both ends of a row.
bool padding_is_apart(const WindowAxis& axis) { return (axis.outputs - 1) * axis.stride <= axis.size; }

/// Whether no tile has more than one pixel of padding at either end.
bool padding_is_one_pixel(const WindowAxis& axis) {
  const std::int64_t last_tap = axis.first(axis.outputs - 1) + (axis.taps - 1) * axis.dilation;
  return axis.pad <= axis.stride && last_tap - axis.stride < axis.size;
}

/// Whether tiles with few registers should read staged zeros instead of skipping padding: so many taps of short rows
/// read padding, and a tile that skips a part of a row takes a jump in each step.
bool many_taps_skip(const Conv2dProblem& p, const Conv2dKernels& kernels) {
  const WindowAxis axis = column_axis(p);
  if (kernels.max_pixels >= kTilePixelsOfManyRegisters || padding_is_one_pixel(axis)) return false;
  const std::int64_t taps = axis.inside(0).begin + axis.taps - axis.inside(axis.outputs - 1).end;
  return 4 * taps > ceil_div(axis.outputs, std::int64_t{kernels.max_pixels}) * axis.taps;
}

/// Whether a tile's pixels lie a multiple of 4 KiB apart, so that they share one set of L1, and copying them pays,
/// although each out tile makes its own copy. Copies of dilated windows would be so large that units have few rows,
/// each of which reads all weights.
bool copies_aliased(const Conv2dProblem& p) {
  constexpr std::int64_t kMaxOutTiles = 4;
  const bool dilated = p.dilation_h > 1 || p.dilation_w > 1;
  return p.s > 1 && !dilated && shares_a_set(p.stride_w, p.c, kFloat) && p.group_k() <= kMaxOutTiles * kPartitionLanes;
}

/// How many neighbouring pixels of a tile have lines in different sets of L1.
std::int64_t pixels_of_a_way(const Conv2dProblem& p) {
  return kL1WayBytes / std::gcd(p.stride_w * p.c * kFloat, kL1WayBytes);
}

/// Whether a unit stages its input, so that tiles of one vector know the distance of its pixels: such a tile loads an
/// operand for each product, and an index to it costs issue slots. Enough taps must read a staged line. Not without
/// groups: there it gains where another thread shares the core (1.1), and loses where none does (0.88).
bool takes_near_pixels(const Conv2dProblem& p, const Conv2dKernels& kernels) {
  constexpr std::int64_t kFewestTaps = 6;
  const bool one_vector = p.group_k() <= kernels.lanes && p.group_k() > kernels.lanes - kernels.least_lanes;
  return kernels.prefers_near_pixels && one_vector && p.groups > 1 && p.group_c() % kNearPitch == 0 && p.nhwc &&
         p.pool.none() && p.stride_w == 1 && p.s > 1 && p.r * p.s >= kFewestTaps * p.stride_h;
}

TileChoice choose_tile(const Conv2dProblem& p, const Conv2dKernels& kernels, bool in_place) {
  TileChoice tile{};
  tile.row_pair = p.pool.is_2x2();
  tile.stores = p.dtype == DType::f32 && p.nhwc && p.activation != Activation::tanh && (p.pool.none() || tile.row_pair);
  const bool narrow = p.group_k() <= kernels.lanes && !tile.row_pair;
  tile.pixels = narrow ? kernels.max_narrow_pixels : kernels.max_pixels;
  if (in_place) tile.pixels = std::min(tile.pixels, l1_bytes() / kL1WayBytes * pixels_of_a_way(p));
  tile.panel_lanes = kMaxTileVectors * kernels.lanes;
  // With ordinary stores, a result larger than the last level would evict the input.
  tile.non_temporal = tile.stores && p.group_k() % kernels.lanes == 0 && beyond_last_level(p.y_elements() * kFloat);
  // Stores to lines that lie in L2 end in time by themselves; prefetching for them costs up to 3 % (Zen 5, 7x1
  // windows).
  tile.prefetches_output = tile.stores && p.y_elements() * kFloat > l2_bytes();
  return tile;
}

/// Groups of few channels whose pixels must be copied are copied together, pixel after pixel: a core has too few misses
/// of L1 in flight to fetch a line or two of each pixel, group after group, as fast as whole pixels come from L3.
std::int64_t groups_staged_together(const Conv2dProblem& p, std::int64_t in_lanes, int threads) {
  constexpr std::int64_t kFewLines = 4;
  const bool few = p.groups > 1 && p.group_c() * kFloat <= kFewLines * 64 && p.group_k() <= kPartitionLanes;
  const bool copied = p.dtype == DType::f32 && p.nhwc && copies_aliased(p);
  if (threads > 1 || !few || !copied || p.group_c() % in_lanes != 0) return 1;
  const WindowAxis rows = row_axis(p);
  const std::int64_t least_rows = std::min(p.h, (rows.taps - 1) * rows.dilation + 1 + rows.stride);
  const std::int64_t group_bytes = least_rows * p.w * p.group_c() * kFloat;
  return even_part(p.groups, std::clamp<std::int64_t>(l2_bytes() / 4 / group_bytes, 1, p.groups));
}

/// Whether a panel's first tile would wait for its weights: they come from beyond the last level, or from the part of
/// it that other guests of a machine leave. Enough tiles must share the work of prefetching them.
bool prefetches_weights(const Conv2dBlocking& b) {
  constexpr std::int64_t kLeastPixels = 6;  // of a tile: with fewer, loads bound a step
  const Conv2dProblem& p = b.problem;
  const std::int64_t tiles = b.units.images * b.units.rows * ceil_div(b.units.pixels, std::int64_t{b.tile.pixels});
  return p.r * p.s > 1 && b.unit_groups == 1 && b.units.pixels >= kLeastPixels && tiles >= kAheadShare &&
         p.k * p.group_c() * p.r * p.s * kFloat > last_level_bytes() * 5 / 16;
}

}  // namespace

Conv2dBlocking choose_blocking(const Conv2dProblem& problem, const Conv2dKernels& kernels, int threads) {
  Conv2dBlocking b{};
  b.problem = with_pixels_in_a_row(problem);
  const Conv2dProblem& p = b.problem;
  const bool padded = row_axis(p).padded() || column_axis(p).padded();
  b.input.near_pixels = takes_near_pixels(p, kernels);
  const bool in_place = p.dtype == DType::f32 && p.nhwc && !copies_aliased(p) && !b.input.near_pixels;
  b.input.never_staged = in_place && (!padded || (padding_is_apart(column_axis(p)) && !many_taps_skip(p, kernels)));
  b.input.skips_padding = b.input.never_staged && padded;
  b.input.skips_several = b.input.skips_padding && !padding_is_one_pixel(column_axis(p));
  b.tile = choose_tile(p, kernels, b.input.never_staged);
  b.channels.in_lanes = b.input.near_pixels ? kNearPitch : even_in_lanes(p, kernels);
  b.unit_groups = groups_staged_together(p, b.channels.in_lanes, threads);
  Search(kernels, threads, b).run();
  if (b.unit_groups > 1 && b.channels.chunks > 1) {  // all chunks of a group would be staged before the next group's
    b.unit_groups = 1;
    Search(kernels, threads, b).run();
  }
  b.prefetches_weights = prefetches_weights(b);
  return b;
}

PixelRange pixels_in_place(const Conv2dBlocking& b, const UnitWindow& window) {
  if (b.input.never_staged) return all_in_place(window);
  const Conv2dProblem& p = b.problem;
  if (b.input.near_pixels || p.dtype != DType::f32 || !p.nhwc || copies_aliased(p)) return all_staged(window);
  return inner_tiles_in_place(column_axis(p), window, tiles_of(b, window), b.input.axes.columns);
}

}  // namespace gable::cpu
