// Chooses the blocking. Budgets of one thread, in parts of L2: weights of a panel and chunk 3/8, staged input 3/8,
// partial sums and strip 1/4 together. Units are made as large as 16 register tiles of pixels, so that a panel's
// weights are used 16 times per pass through L2, of several images where one is too small for that, and small enough to
// give every thread at least four. Of a single tap every panel reads the whole input again, so that stays within 1/2 of
// L2: by fewer pixels, down to 4 tiles, rather than by chunks, whose partial sums cost more than weights that come from
// L3 more often.
#include "cpu/direct/conv2d_blocking.h"

#include <algorithm>

#include "cpu/common/cache.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kInLanes = 16;  // one cache line of f32 NHWC input
constexpr std::int64_t kTilesPerUnit = 16;
constexpr std::int64_t kLeastTilesPerUnit = 4;
constexpr std::int64_t kFloat = sizeof(float);

Conv2dGeometry make_geometry(const Conv2dProblem& p) {
  Conv2dGeometry g{p.n, p.h, p.w, p.ho, p.wo, p.out_h(), p.out_w(), p.groups, p.c / p.groups, p.k / p.groups, false};
  if (is_depthwise(p)) {
    g.depthwise = true;
    g.groups = 1;
    g.group_k = p.k;
  }
  if (is_pointwise(p)) {
    const std::int64_t pixels = p.h * p.w * (p.nhwc ? p.n : 1);
    g.n = p.nhwc ? 1 : p.n;
    g.h = g.ho = g.out_h = 1;
    g.w = g.wo = g.out_w = pixels;
  }
  return g;
}

/// Spans where they need no more positions than a gather for `outputs` outputs.
AxisMap make_axis(std::int64_t outputs, std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  const AxisMap span{stride, dilation, taps, stride, dilation, false};
  const AxisMap gather{taps, 1, taps, stride, dilation, true};
  return span.positions(outputs) <= gather.positions(outputs) ? span : gather;
}

/// The sizes that the search below varies.
struct Candidate {
  std::int64_t rows, pixels, chunk;
};

class Search {
 public:
  Search(const Conv2dProblem& problem, const Conv2dKernels& kernels, int threads, Conv2dBlocking& blocking)
      : p_(problem), kernels_(kernels), threads_(threads), b_(blocking), g_(blocking.geometry) {}

  void run() {
    Candidate candidate =
        shrink_to_fit({1, std::min(g_.out_w, pixel_target() * (p_.r * p_.s > 1 ? 2 : 1)), first_chunk()});
    grow_rows(candidate);
    feed_threads(candidate);
    b_.chunk_channels = candidate.chunk;
    b_.chunks = g_.depthwise ? 1 : ceil_div(g_.group_c, candidate.chunk);
    b_.unit_rows = even_part(g_.out_h, candidate.rows);
    b_.unit_pixels = even_part(g_.out_w, candidate.pixels);
    b_.row_blocks = ceil_div(g_.out_h, b_.unit_rows);
    b_.pixel_blocks = ceil_div(g_.out_w, b_.unit_pixels);
    b_.unit_images = images(candidate);
    // Not where two rows of pixels, multiples of 4 KiB apart, outnumber the L1's ways.
    b_.image_pair = b_.unit_images > 1 && !b_.row_pair && g_.out_w <= kernels_.max_image_pair_pixels &&
                    2 * g_.out_w <= b_.tile_pixels;
    b_.units = ceil_div(g_.n, b_.unit_images) * b_.row_blocks * b_.pixel_blocks * g_.groups * b_.out_tiles;
    b_.rows = row_axis({b_.unit_rows, b_.unit_pixels, candidate.chunk});
    b_.columns = column_axis({b_.unit_rows, b_.unit_pixels, candidate.chunk});
    lay_out({b_.unit_rows, b_.unit_pixels, candidate.chunk});
  }

 private:
  std::int64_t pixel_target() const {
    const std::int64_t target = kTilesPerUnit * kernels_.max_pixels;
    if (p_.r * p_.s > 1) return target;
    const std::int64_t cached = l2_bytes() / 2 / (first_chunk() * kFloat);
    return std::clamp<std::int64_t>(cached, kLeastTilesPerUnit * kernels_.max_pixels, target);
  }
  std::int64_t conv_rows(const Candidate& c) const {
    return Conv2dBlocking::conv_extent(c.rows, p_.pool.h, p_.pool.stride_h);
  }
  std::int64_t conv_pixels(const Candidate& c) const {
    return Conv2dBlocking::conv_extent(c.pixels, p_.pool.w, p_.pool.stride_w);
  }
  AxisMap row_axis(const Candidate& c) const { return make_axis(conv_rows(c), p_.r, p_.stride_h, p_.dilation_h); }
  AxisMap column_axis(const Candidate& c) const { return make_axis(conv_pixels(c), p_.s, p_.stride_w, p_.dilation_w); }
  std::int64_t tile_lanes() const {
    return std::min<std::int64_t>(kPartitionLanes, round_up(g_.group_k, kernels_.lanes));
  }

  std::int64_t stage_floats(const Candidate& c) const {
    if (b_.never_staged) return 0;
    const std::int64_t columns = column_axis(c).positions(conv_pixels(c));
    const std::int64_t positions = row_axis(c).positions(conv_rows(c)) * columns;
    // Depthwise from nchw also needs four channel rows to transpose.
    if (g_.depthwise) return positions * tile_lanes() + 4 * columns;
    return positions * round_up(std::min(c.chunk, g_.group_c), b_.in_lanes);
  }
  /// What taps read of the image in place, for one panel after another: narrower units keep it in L2.
  std::int64_t image_floats(const Candidate& c) const {
    if (!b_.never_staged || p_.r * p_.s == 1 || g_.depthwise) return 0;
    return row_axis(c).positions(conv_rows(c)) * column_axis(c).positions(conv_pixels(c)) *
           std::min(c.chunk, g_.group_c);
  }
  std::int64_t partial_floats(const Candidate& c) const {
    const bool several_chunks = !g_.depthwise && c.chunk < g_.group_c;
    return several_chunks ? conv_rows(c) * conv_pixels(c) * tile_lanes() : 0;
  }
  std::int64_t strip_floats(const Candidate& c) const {
    if (b_.tile_stores) return 0;
    return (b_.row_pair ? c.rows * c.pixels : conv_rows(c) * conv_pixels(c)) * tile_lanes();
  }
  bool fits(const Candidate& c) const {
    return stage_floats(c) * kFloat <= l2_bytes() * 3 / 8 &&
           (partial_floats(c) + strip_floats(c)) * kFloat <= l2_bytes() / 4;
  }

  std::int64_t first_chunk() const {
    const std::int64_t channel_bytes = p_.r * p_.s * b_.panel_lanes * kFloat;
    std::int64_t most = l2_bytes() * 3 / 8 / channel_bytes;
    if (p_.r * p_.s == 1) most = std::min(most, l2_bytes() / 2 / (kLeastTilesPerUnit * kernels_.max_pixels * kFloat));
    most = std::max(most, b_.in_lanes);
    return round_up(even_part(g_.group_c, most), b_.in_lanes);
  }

  /// Narrows the unit to a few tiles of pixels, then the chunk, then the pixels further; a kernel window too large even
  /// for that gets the workspace it needs.
  Candidate shrink_to_fit(Candidate c) const {
    while (image_floats(c) * kFloat > l2_bytes() * 3 / 8 && c.pixels > 2 * kernels_.max_pixels) {
      c.pixels = round_up(ceil_div(c.pixels, 2), kernels_.max_pixels);
    }
    while (!fits(c)) {
      if (c.pixels > 2 * kernels_.max_pixels) {
        c.pixels = round_up(ceil_div(c.pixels, 2), kernels_.max_pixels);
      } else if (!g_.depthwise && c.chunk > b_.in_lanes) {
        c.chunk = round_up(ceil_div(c.chunk, 2), b_.in_lanes);
      } else if (c.pixels > 1) {
        c.pixels = ceil_div(c.pixels, 2);
      } else {
        break;
      }
    }
    return c;
  }

  void grow_rows(Candidate& c) const {
    while (c.rows < g_.out_h && conv_rows(c) * conv_pixels(c) < pixel_target()) {
      const Candidate taller{c.rows + 1, c.pixels, c.chunk};
      if (!fits(taller)) return;
      c = taller;
    }
  }

  /// Whole images for a unit that are fewer pixels than it should have, and whose chunk stays in 1/2 of L2; pairs where
  /// there are several.
  std::int64_t images(const Candidate& c) const {
    if (!b_.never_staged || !b_.tile_stores || g_.depthwise || c.rows < g_.out_h || c.pixels < g_.out_w) return 1;
    const std::int64_t wanted = round_up(ceil_div(pixel_target(), conv_rows(c) * conv_pixels(c)), 2);
    const std::int64_t cached = l2_bytes() / 2 / (g_.h * g_.w * std::min(c.chunk, g_.group_c) * kFloat);
    const std::int64_t fed = threads_ == 1 ? g_.n : units(c) / (kUnitsPerThread * threads_);
    return even_part(g_.n, std::clamp<std::int64_t>(std::min({wanted, cached, fed}), 1, g_.n));
  }

  std::int64_t units(const Candidate& c) const {
    return g_.n * ceil_div(g_.out_h, c.rows) * ceil_div(g_.out_w, c.pixels) * g_.groups * b_.out_tiles;
  }
  void feed_threads(Candidate& c) const {
    if (threads_ == 1) return;
    while (units(c) < kUnitsPerThread * threads_ && c.rows > 1) c.rows = ceil_div(c.rows, 2);
    while (units(c) < kUnitsPerThread * threads_ && c.pixels > 2 * kernels_.max_pixels) {
      c.pixels = round_up(ceil_div(c.pixels, 2), kernels_.max_pixels);
    }
  }

  void lay_out(const Candidate& c) const {
    const auto lines = [](std::int64_t floats) { return static_cast<std::size_t>(round_up(floats, 16)); };
    b_.stage_floats = lines(stage_floats(c));
    b_.partial_offset = b_.stage_floats;
    b_.above_offset = b_.partial_offset + lines(b_.unit_images * partial_floats(c));
    b_.strip_offset = b_.above_offset + lines(b_.row_pair ? b_.tile_pixels * b_.panel_lanes : 0);
    b_.block_offset = b_.strip_offset + lines(strip_floats(c));
    b_.bias_offset = b_.block_offset + (b_.tile_stores ? 0 : 2 * kStoreBlockFloats);
    b_.thread_floats = b_.bias_offset + kPartitionLanes;
  }

  const Conv2dProblem& p_;
  const Conv2dKernels& kernels_;
  int threads_;
  Conv2dBlocking& b_;
  const Conv2dGeometry& g_;
};

}  // namespace

bool reads_weights_once(const Conv2dProblem& p) {
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  return beyond_last_level(p.k * p.c / p.groups * p.r * p.s * bytes) &&
         !beyond_last_level(p.n * p.h * p.w * p.c * bytes);
}

Conv2dBlocking choose_blocking(const Conv2dProblem& p, const Conv2dKernels& kernels, int threads) {
  Conv2dBlocking b{};
  b.geometry = make_geometry(p);
  const Conv2dGeometry& g = b.geometry;
  b.row_pair = p.pool.is_2x2();
  b.tile_stores = p.dtype == DType::f32 && p.nhwc && p.activation != Activation::tanh && (p.pool.none() || b.row_pair);
  const bool padded = p.pad_top > 0 || p.pad_left > 0 ||
                      (g.ho - 1) * p.stride_h + (p.r - 1) * p.dilation_h - p.pad_top >= g.h ||
                      (g.wo - 1) * p.stride_w + (p.s - 1) * p.dilation_w - p.pad_left >= g.w;
  const bool lanes_overrun = g.depthwise && g.group_k % kernels.lanes != 0;
  // Tiles leave out at most one pixel at either end, and no tap leaves out both ends.
  const bool trimmed = !g.depthwise && p.pad_left <= p.stride_w &&
                       (g.wo - 2) * p.stride_w + (p.s - 1) * p.dilation_w - p.pad_left < g.w &&
                       (g.wo - 1) * p.stride_w <= g.w;
  b.never_staged = p.dtype == DType::f32 && p.nhwc && (!padded || trimmed) && !lanes_overrun;
  b.trims = b.never_staged && padded;
  const bool aliased = b.never_staged && p.stride_w * p.c * kFloat % kL1WayBytes == 0;
  b.tile_pixels = b.row_pair && g.depthwise ? kernels.max_pair_pixels : kernels.max_pixels;
  if (aliased) b.tile_pixels = std::min(b.tile_pixels, l1_bytes() / kL1WayBytes);
  // A result that the last level cannot hold would only push the input out of it.
  b.streams =
      b.tile_stores && g.group_k % kernels.lanes == 0 && beyond_last_level(p.n * p.out_h() * p.out_w() * p.k * kFloat);
  b.weights_once = !g.depthwise && reads_weights_once(p);
  b.panel_lanes = kMaxTileVectors * kernels.lanes;
  b.out_tiles = ceil_div(g.group_k, kPartitionLanes);
  b.in_lanes = g.depthwise ? 1 : even_part(g.group_c, kInLanes);
  Search(p, kernels, threads, b).run();
  return b;
}

}  // namespace gable::cpu
