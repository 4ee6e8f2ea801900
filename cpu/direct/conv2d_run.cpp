// The loop nest: units over threads; in a unit chunk > panel > image > row > register tile (see conv2d_blocking.h). It
// only computes addresses; everything that touches an element is a kernel of conv2d_kernels.h or strips.h.
#include "cpu/direct/conv2d_run.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"
#include "cpu/common/unit_input.h"
#include "cpu/common/unit_output.h"

namespace gable::cpu {
namespace {

UnitLanes lanes_of(const Conv2dBlocking& b, const UnitPlace& place, int least_lanes) {
  const Conv2dProblem& p = b.problem;
  const std::int64_t first = place.out_tile * b.unit_lanes;
  const std::int64_t lanes = std::min(b.unit_lanes, p.group_k() - first);
  return {place.group * p.group_k() + first, lanes, round_up(lanes, least_lanes)};
}

/// One unit of work: its place, and the passes over it.
class Unit {
 public:
  Unit(const Conv2dRun& run, std::int64_t index, int thread)
      : run_(run),
        b_(run.blocking),
        p_(run.blocking.problem),
        place_(b_.units.at(index)),
        index_(index),
        window_(unit_window(p_, b_.units, place_)),
        lanes_(lanes_of(b_, place_, run.kernels.least_lanes)),
        workspace_(run.workspace + static_cast<std::size_t>(thread) * b_.workspace.floats),
        images_(std::min(b_.units.images, p_.n - place_.first_image)),
        tiles_(tiles_of(b_, window_)),
        input_(p_, window_, b_.input.axes, pixels_in_place(b_, window_)),
        output_(output_place()) {
    place_.group *= b_.unit_groups;
  }

  void compute() {
    note_input_paths();
    const std::int64_t first_group = place_.group, groups = std::min(b_.unit_groups, p_.groups - first_group);
    for (group_ = 0; group_ < groups; ++group_) {
      place_.group = first_group + group_;
      compute_group(groups);
    }
    if (run_.non_temporal) hwy::FlushStream();
  }

 private:
  /// The group `group_` of the unit's `groups` groups. With the first one the input of all of them is staged.
  void compute_group(std::int64_t groups) {
    lanes_ = lanes_of(b_, place_, run_.kernels.least_lanes);
    output_ = output_place();
    const float* bias = bias_in_vectors(run_.bias, lanes_, workspace_ + b_.workspace.bias);
    for (std::int64_t first = 0; first < p_.group_c(); first += b_.channels.chunk) {
      const Chunk chunk = chunk_at(first);
      if (group_ == 0) stage({chunk.first, chunk.channels * groups});
      for (std::int64_t lane = 0; lane < lanes_.lanes;) lane += compute_panel(chunk, lane, bias);
    }
    if (!b_.tile.stores) {
      store_results({p_, strip_kernels(run_.target), window_, output_, p_.pool.none() || b_.tile.row_pair,
                     workspace_ + b_.workspace.block},
                    lanes_, bias, output_in_y());
    }
  }

  /// Input channels of the group.
  struct Chunk {
    std::int64_t first, channels;
  };
  /// The tiles of one panel.
  struct Panel {
    std::int64_t lane;        // of the unit's lanes
    const TileFunction* row;  // indexed by pixels
    const TileFunction* image_pair;
  };

  /// A tile's first result in the window, before the pool.
  struct ConvPosition {
    std::int64_t image, row, pixel, lane;
  };

  void note_input_paths() const {
    if (input_.stages()) note_path(p_.nhwc ? Path::conv2d_stage_nhwc : Path::conv2d_stage_nchw, run_.target);
    if (input_.reads_in_place()) note_path(Path::conv2d_direct_input, run_.target);
    if (input_.stages() && input_.reads_in_place()) note_path(Path::conv2d_edge_strips, run_.target);
  }

  void stage(const Chunk& chunk) {
    const Strides strides = x_strides(p_);
    const std::int64_t channel = place_.group * p_.group_c() + chunk.first;
    const StripKernels& kernels = strip_kernels(run_.target);
    const auto& functions = p_.nhwc ? kernels.stage_nhwc : kernels.stage_nchw;
    input_.prepare(advance(run_.x, p_.dtype, place_.first_image * strides.image + channel * strides.channel),
                   chunk.channels, {functions[static_cast<std::size_t>(p_.dtype)], b_.channels.in_lanes, p_.nhwc},
                   workspace_);
  }

  void* output_in_y() const {
    return advance(run_.y, p_.dtype, output_offset(p_, place_.first_image, window_, lanes_.first));
  }
  OutputPlace output_place() const {
    if (b_.tile.stores) {
      const Strides strides = y_strides(p_);
      return {static_cast<float*>(output_in_y()), strides.row, strides.pixel};
    }
    const std::int64_t pixels = b_.tile.row_pair ? window_.pixels : window_.conv_pixels;
    return {workspace_ + b_.workspace.strip, pixels * lanes_.padded, lanes_.padded};
  }

  Chunk chunk_at(std::int64_t first) const { return {first, std::min(b_.channels.chunk, p_.group_c() - first)}; }

  WeightPanel weights_of(const UnitPlace& place, const Chunk& chunk, std::int64_t lane,
                         std::int64_t panel_lanes) const {
    const std::int64_t taps = p_.r * p_.s;
    const std::int64_t group_lanes = round_up(p_.group_k(), run_.kernels.least_lanes);
    const std::int64_t first_lane = place.group * group_lanes + place.out_tile * b_.unit_lanes + lane;  // of all packed
    const std::int64_t in_tiles = ceil_div(chunk.channels, b_.channels.in_lanes);
    return {.weights = run_.packed + first_lane * p_.group_c() * taps + chunk.first * taps * panel_lanes,
            .kernel_h = p_.r,
            .kernel_w = p_.s,
            .in_tiles = in_tiles,
            .in_lanes = b_.channels.in_lanes,
            .last_in_lanes = chunk.channels - (in_tiles - 1) * b_.channels.in_lanes};
  }

  /// The weights after a panel's: of the chunk's next panel, of the next chunk, or of the unit that this thread most
  /// likely takes next. Null where nothing follows.
  const float* weights_after(const Chunk& chunk, std::int64_t lane, std::int64_t panel_lanes) const {
    if (lane + panel_lanes < lanes_.lanes) {
      const std::int64_t next = lane + panel_lanes;
      return weights_of(place_, chunk, next, tile_panel_lanes(run_.kernels, lanes_.lanes - next)).weights;
    }
    const std::int64_t first = chunk.first + chunk.channels;
    const bool unit_ends = first >= p_.group_c();
    if (unit_ends && index_ + 1 >= b_.units.count()) return nullptr;
    const UnitPlace place = unit_ends ? b_.units.at(index_ + 1) : place_;
    const std::int64_t lanes = lanes_of(b_, place, run_.kernels.lanes).lanes;
    return weights_of(place, chunk_at(unit_ends ? 0 : first), 0, tile_panel_lanes(run_.kernels, lanes)).weights;
  }

  /// Returns the panel's lanes.
  std::int64_t compute_panel(const Chunk& chunk, std::int64_t lane, const float* bias) const {
    const std::int64_t panel_lanes = tile_panel_lanes(run_.kernels, lanes_.lanes - lane);
    const auto vectors = static_cast<std::size_t>(panel_lanes / run_.kernels.lanes);
    TileCall call;
    call.weights = weights_of(place_, chunk, lane, panel_lanes);
    call.prefetch = {std::min(p_.s, ceil_div(p_.stride_w, p_.dilation_w)), (p_.s - 1) * p_.dilation_w / p_.stride_w,
                     b_.tile.prefetches_output && !run_.non_temporal};
    call.partial = {.sums = nullptr,
                    .row = (b_.tile.image_pair ? window_.conv_rows : 1) * window_.conv_pixels * lanes_.padded,
                    .px = b_.channels.chunks == 1 ? b_.tile.panel_lanes : lanes_.padded,
                    .load = chunk.first > 0,
                    .store = chunk.first + chunk.channels < p_.group_c(),
                    .above = nullptr};
    call.y = {.y = nullptr,
              .row = b_.tile.two_rows ? output_.row : y_strides(p_).image,
              .px = output_.px,
              .lanes = static_cast<int>(b_.tile.stores ? std::min(panel_lanes, lanes_.lanes - lane) : panel_lanes),
              .bias = b_.tile.stores && bias != nullptr ? bias + lane : nullptr,
              .relu = b_.tile.stores && p_.activation == Activation::relu,
              .non_temporal = run_.non_temporal};
    call.ahead = {b_.prefetches_weights ? weights_after(chunk, lane, panel_lanes) : nullptr,
                  chunk.channels * p_.r * p_.s * panel_lanes / kAheadShare};
    const Conv2dKernels& kernels = run_.kernels;
    compute_images(call, b_.input.near_pixels ? Panel{lane, kernels.near_tile, kernels.near_pair}
                                              : Panel{lane, kernels.tile[vectors], kernels.image_pair[vectors]});
    return panel_lanes;
  }

  void compute_images(TileCall& call, const Panel& panel) const {
    for (std::int64_t image = 0; image < images_;) {
      const bool pair = b_.tile.image_pair && image + 1 < images_;
      compute_image(call, panel, image, pair);
      image += pair ? 2 : 1;
    }
  }

  /// The rows of one image, or with `pair` of two images.
  void compute_image(TileCall& call, const Panel& panel, std::int64_t image, bool pair) const {
    for (std::int64_t row = 0; row < window_.conv_rows;) {
      const bool two_rows = takes_two_rows(row);
      compute_row(call, pair || two_rows ? panel.image_pair : panel.row, {image, row, 0, panel.lane}, pair);
      row += two_rows ? 2 : tiles_.step;
    }
  }

  /// Whether this row and the next form a tile of two rows: they are as short as rows of two images must be, and have
  /// the same taps.
  bool takes_two_rows(std::int64_t row) const {
    if (!b_.tile.two_rows || row + 1 >= window_.conv_rows) return false;
    const TapRange first = rows_inside(row);
    const TapRange second = rows_inside(row + 1);
    return first.begin == second.begin && first.end == second.end;
  }

  TapRange rows_inside(std::int64_t row) const {
    return taps_inside(window_.x_row + row * p_.stride_h, p_.h, p_.dilation_h, p_.r);
  }

  void compute_row(TileCall& call, const TileFunction* functions, ConvPosition position, bool pair) const {
    const Strides x = x_strides(p_);
    const Strides y = y_strides(p_);
    const std::int64_t group_tiles = ceil_div(p_.group_c(), b_.channels.in_lanes);
    for (std::int64_t tile = 0; tile < tiles_.count; ++tile) {
      const std::int64_t width = tiles_.width(tile);
      call.x = input_.at(position.row, position.pixel);
      call.x.x += position.image * x.image + group_ * group_tiles * call.x.in_tile;
      const std::int64_t next_row = call.x.row;
      if (pair) call.x.row = x.image;
      choose_columns(call.taps, position.pixel, width);
      call.y.y = output_.at(position.row / tiles_.step, position.pixel / tiles_.step) + position.lane +
                 position.image * y.image;
      if (b_.tile.row_pair) {
        compute_row_pair(call, functions[width], position, next_row);
      } else {
        compute_tile(call, functions[width], position);
      }
      position.pixel += width;
    }
  }

  void compute_tile(TileCall& call, TileFunction function, const ConvPosition& position) const {
    call.taps.rows = rows_inside(position.row);
    call.partial.sums = partial_sums(position);
    function(call);
    call.ahead.next_tile();
  }

  /// Both rows of a 2×2 pool: the first tile stores its accumulators, the second one stores the pooled result.
  void compute_row_pair(TileCall& call, TileFunction function, const ConvPosition& upper, std::int64_t next_row) const {
    const bool last_chunk = !call.partial.store;
    call.partial.above = nullptr;
    call.partial.store = true;
    compute_tile(call, function, upper);
    if (last_chunk) call.partial.above = call.partial.sums;
    call.partial.store = !last_chunk;
    call.x.x += next_row;
    compute_tile(call, function, {upper.image, upper.row + 1, upper.pixel, upper.lane});
  }

  /// Where accumulators are kept for the next chunk or, with one chunk, for the row below.
  float* partial_sums(const ConvPosition& position) const {
    if (b_.channels.chunks == 1) return workspace_ + b_.workspace.above;
    const std::int64_t row = position.image * window_.conv_rows + position.row;
    return workspace_ + b_.workspace.partial + (row * window_.conv_pixels + position.pixel) * lanes_.padded +
           position.lane;
  }

  /// A tile that reads the image in place skips its first or last pixel where a tap reads padding there.
  void choose_columns(TapWindow& taps, std::int64_t pixel, std::int64_t width) const {
    taps.left = 0;
    taps.right = p_.s;
    if (!input_.in_place(pixel)) return;
    const std::int64_t first = window_.x_column + pixel * p_.stride_w;
    taps.left = taps_before(first, 0, p_.dilation_w, p_.s);
    taps.several = b_.input.skips_several;
    taps.first_column = first;
    taps.stride = p_.stride_w;
    taps.dilation = p_.dilation_w;
    taps.columns = p_.w;
    taps.right = taps_before(first + (width - 1) * p_.stride_w, p_.w, p_.dilation_w, p_.s);
  }

  const Conv2dRun& run_;
  const Conv2dBlocking& b_;
  const Conv2dProblem& p_;
  UnitPlace place_;
  std::int64_t index_;
  std::int64_t group_ = 0;  // of the unit's groups
  UnitWindow window_;
  UnitLanes lanes_;
  float* workspace_;
  std::int64_t images_;
  Tiles tiles_;
  UnitInput input_;
  OutputPlace output_;
};

void note_plan_paths(const Conv2dRun& run) {
  const Conv2dBlocking& b = run.blocking;
  note_path(b.tile.row_pair     ? Path::conv2d_row_pair
            : b.tile.image_pair ? Path::conv2d_image_pair
            : b.tile.two_rows   ? Path::conv2d_two_rows
                                : Path::conv2d_tile,
            run.target);
  if (run.non_temporal) note_path(Path::conv2d_non_temporal, run.target);
  if (b.tile.prefetches_output && !run.non_temporal) note_path(Path::conv2d_output_ahead, run.target);
  if (b.input.near_pixels) note_path(Path::conv2d_near_pixels, run.target);
  if (b.input.skips_padding) note_path(Path::conv2d_trims, run.target);
  if (b.input.skips_several) note_path(Path::conv2d_trims_several, run.target);
  if (b.channels.chunks > 1) note_path(Path::conv2d_partial_sums, run.target);
  if (b.unit_groups > 1) note_path(Path::conv2d_groups_together, run.target);
  if (b.prefetches_weights) note_path(Path::conv2d_weights_ahead, run.target);
  if (!b.tile.stores) {
    note_path(b.problem.nhwc ? Path::conv2d_store_nhwc : Path::conv2d_store_nchw, run.target);
  }
}

}  // namespace

void run_conv2d(const Conv2dRun& run, int threads, RunTimes& times) {
  note_plan_paths(run);
  parallel_units(threads, run.blocking.units.count(), times,
                 [&run](std::int64_t unit, int thread) { Unit(run, unit, thread).compute(); });
}

}  // namespace gable::cpu
