// Chooses the blocking. Budgets of one thread, in parts of L2: staged input 3/8, strip of results 1/4. Units are made
// as large as 16 register tiles of pixels, so that a panel's weights are used 16 times, and small enough to give every
// thread at least four.
#include "cpu/depthwise/depthwise_staged_blocking.h"

#include <algorithm>

#include "cpu/common/cache.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kTilesPerUnit = 16;
constexpr std::int64_t kFloat = sizeof(float);

/// Output rows and pixels of a unit, which the search below varies.
struct Candidate {
  std::int64_t rows, pixels;
};

class Search {
 public:
  Search(const DepthwiseStagedKernels& kernels, int threads, DepthwiseStagedBlocking& blocking)
      : p_(blocking.problem), kernels_(kernels), threads_(threads), b_(blocking) {}

  void run() {
    Candidate candidate = shrink_to_fit({1, std::min(p_.out_w(), pixel_target() * (p_.r * p_.s > 1 ? 2 : 1))});
    grow_rows(candidate);
    feed_threads(candidate);
    b_.units = unit_grid(p_, 1, candidate.rows, candidate.pixels);
    b_.units.out_tiles = ceil_div(p_.k, kPartitionLanes);
    const Candidate chosen{b_.units.rows, b_.units.pixels};
    b_.axes = axes(chosen);
    lay_out(chosen);
  }

 private:
  std::int64_t pixel_target() const { return kTilesPerUnit * kernels_.max_pixels; }
  std::int64_t conv_rows(const Candidate& c) const { return conv_extent(c.rows, p_.pool.h, p_.pool.stride_h); }
  std::int64_t conv_pixels(const Candidate& c) const { return conv_extent(c.pixels, p_.pool.w, p_.pool.stride_w); }
  StripAxes axes(const Candidate& c) const {
    return {smaller_axis_map(conv_rows(c), p_.r, p_.stride_h, p_.dilation_h),
            smaller_axis_map(conv_pixels(c), p_.s, p_.stride_w, p_.dilation_w)};
  }
  std::int64_t tile_lanes() const { return std::min<std::int64_t>(kPartitionLanes, round_up(p_.k, kernels_.lanes)); }

  /// Staging nchw also needs four channel rows to transpose.
  std::int64_t stage_floats(const Candidate& c) const {
    if (b_.never_staged) return 0;
    const StripAxes strip = axes(c);
    const std::int64_t columns = strip.columns.positions(conv_pixels(c));
    return strip.rows.positions(conv_rows(c)) * columns * tile_lanes() + 4 * columns;
  }
  std::int64_t strip_floats(const Candidate& c) const {
    if (b_.tile_stores) return 0;
    return (b_.row_pair ? c.rows * c.pixels : conv_rows(c) * conv_pixels(c)) * tile_lanes();
  }
  bool fits(const Candidate& c) const {
    return stage_floats(c) * kFloat <= l2_bytes() * 3 / 8 && strip_floats(c) * kFloat <= l2_bytes() / 4;
  }

  /// Narrows the unit until its input fits. If the window is too large even for one pixel, the workspace grows.
  Candidate shrink_to_fit(Candidate c) const {
    while (!fits(c) && c.pixels > 1) {
      c.pixels =
          c.pixels > 2 * kernels_.max_pixels ? half_of_tiles(c.pixels, kernels_.max_pixels) : ceil_div(c.pixels, 2);
    }
    return c;
  }
  void grow_rows(Candidate& c) const {
    while (c.rows < p_.out_h() && conv_rows(c) * conv_pixels(c) < pixel_target() && fits({c.rows + 1, c.pixels})) {
      ++c.rows;
    }
  }
  std::int64_t units(const Candidate& c) const {
    return p_.n * ceil_div(p_.out_h(), c.rows) * ceil_div(p_.out_w(), c.pixels) * ceil_div(p_.k, kPartitionLanes);
  }
  void feed_threads(Candidate& c) const {
    while (units(c) < units_wanted(threads_) && c.rows > 1) c.rows = ceil_div(c.rows, 2);
    while (units(c) < units_wanted(threads_) && c.pixels > 2 * kernels_.max_pixels) {
      c.pixels = half_of_tiles(c.pixels, kernels_.max_pixels);
    }
  }

  void lay_out(const Candidate& c) const {
    StagedWorkspaceParts& parts = b_.workspace;
    parts.strip = line_floats(stage_floats(c));
    parts.block = parts.strip + line_floats(strip_floats(c));
    parts.bias = parts.block + (b_.tile_stores ? 0 : 2 * kStoreBlockFloats);
    parts.floats = parts.bias + kPartitionLanes;
  }

  const Conv2dProblem& p_;
  const DepthwiseStagedKernels& kernels_;
  int threads_;
  DepthwiseStagedBlocking& b_;
};

}  // namespace

DepthwiseStagedBlocking choose_blocking(const Conv2dProblem& problem, const DepthwiseStagedKernels& kernels,
                                        int threads) {
  DepthwiseStagedBlocking b{};
  b.problem = with_pixels_in_a_row(problem);
  const Conv2dProblem& p = b.problem;
  const bool whole_vectors = p.k % kernels.lanes == 0;
  b.row_pair = p.pool.is_2x2();
  b.tile_stores = p.dtype == DType::f32 && p.nhwc && p.activation != Activation::tanh && (p.pool.none() || b.row_pair);
  // With ordinary stores, a result larger than the last level would evict the input.
  b.non_temporal = b.tile_stores && whole_vectors && beyond_last_level(p.y_elements() * kFloat);
  b.never_staged =
      p.dtype == DType::f32 && p.nhwc && whole_vectors && !row_axis(p).padded() && !column_axis(p).padded();
  b.tile_pixels = b.row_pair ? kernels.max_pair_pixels : kernels.max_pixels;
  const bool aliased = b.never_staged && shares_a_set(p.stride_w, p.c, kFloat);
  if (aliased) b.tile_pixels = std::min(b.tile_pixels, l1_bytes() / kL1WayBytes);
  b.panel_lanes = kMaxStagedVectors * kernels.lanes;
  b.vector_lanes = kernels.lanes;
  Search(kernels, threads, b).run();
  return b;
}

UnitLanes lanes_of(const DepthwiseStagedBlocking& b, const UnitPlace& place) {
  const std::int64_t first = place.out_tile * kPartitionLanes;
  const std::int64_t lanes = std::min<std::int64_t>(kPartitionLanes, b.problem.k - first);
  return {first, lanes, round_up(lanes, b.vector_lanes)};
}

PixelRange pixels_in_place(const DepthwiseStagedBlocking& b, const UnitWindow& window, const UnitLanes& lanes) {
  const Conv2dProblem& p = b.problem;
  if (b.never_staged) return all_in_place(window);
  // A tile reads whole vectors of channels.
  if (p.dtype != DType::f32 || !p.nhwc || lanes.lanes != lanes.padded) return all_staged(window);
  // A tile of one row skips the kernel rows that read padding. A tile of two rows cannot: each row has its own.
  const std::int64_t last_row = window.x_row + (window.conv_rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h;
  if (b.row_pair && (window.x_row < 0 || last_row >= p.h)) return all_staged(window);
  return inner_tiles_in_place(column_axis(p), window, tiles_of(b, window), b.axes.columns);
}

}  // namespace gable::cpu
