// See few_channels_unit.h.
#include "cpu/few_channels/few_channels_unit.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "cpu/common/strips.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

/// One unit of work: its coordinates, and the passes over it.
class Unit {
 public:
  Unit(const FewChannelsRun& run, std::int64_t index, float* workspace)
      : run_(run),
        p_(run.problem),
        b_(run.blocking),
        workspace_(workspace),
        image_(index / b_.units.row_blocks),
        first_row_(index % b_.units.row_blocks * b_.units.rows),
        rows_(std::min(b_.units.rows, p_.out_h() - first_row_)) {}

  void compute() const {
    fill_strip();
    if (b_.tile.pixel_lanes) {
      compute_pixel_lanes();
    } else {
      compute_channel_lanes();
    }
  }

 private:
  const void* x_image() const {
    return static_cast<const char*>(run_.x) +
           image_ * p_.c * p_.h * p_.w * static_cast<std::int64_t>(size_of(p_.dtype));
  }
  /// Where output (row of the unit, column 0, channel) begins.
  void* y_at(std::int64_t row, std::int64_t channel) const {
    const std::int64_t out_row = first_row_ + row;
    const std::int64_t element = p_.nhwc ? ((image_ * p_.out_h() + out_row) * p_.out_w()) * p_.k + channel
                                         : ((image_ * p_.k + channel) * p_.out_h() + out_row) * p_.out_w();
    return static_cast<char*>(run_.y) + element * static_cast<std::int64_t>(size_of(p_.dtype));
  }

  /// The whole strip, or the columns of the outputs that do not read the image.
  void fill_strip() const {
    fill_columns(0, b_.in_place.begin);
    if (b_.in_place.any()) fill_columns(b_.in_place.end, p_.out_w());
  }

  /// The columns that the outputs [first, end) of a row read.
  void fill_columns(std::int64_t first, std::int64_t end) const {
    if (first == end) return;
    const std::int64_t together = interleaves_channels(p_, b_.strip) ? p_.c : 1;  // channels of a strip row
    const std::int64_t conv_rows = round_up(rows_ * pool_side(p_), b_.tile.rows);
    const std::int64_t begin = first * b_.strip.pixel_step;  // nonzero in copies only
    const FewStripCall call{.image = {.data = x_image(),
                                      .row_stride = p_.nhwc ? p_.w * p_.c : p_.w,
                                      .channel_stride = p_.nhwc ? 1 : p_.h * p_.w,
                                      .height = p_.h,
                                      .width = p_.w * together,
                                      .channels = p_.c / together},
                            .first_row = first_row_ * pool_side(p_) * p_.stride_h - p_.pad_top,
                            .rows = (conv_rows - 1) * p_.stride_h + (p_.r - 1) * p_.dilation_h + 1,
                            .pad_left = p_.pad_left * together - begin,
                            .phases = b_.strip.phases,
                            .columns = end == p_.out_w() ? b_.strip.columns - begin : columns_of(end),
                            .pitch = b_.strip.pitch,
                            .strip = workspace_ + begin,
                            .row = workspace_ + b_.workspace.row_offset};
    const bool splits = p_.nhwc && b_.strip.planes;
    const auto& fill = splits ? run_.kernels.fill_strip_split : run_.kernels.fill_strip_rows;
    fill[static_cast<std::size_t>(p_.dtype)](call);
  }

  /// Floats of a row of a copy that its first `outputs` outputs read.
  std::int64_t columns_of(std::int64_t outputs) const {
    return (outputs - 1) * b_.strip.pixel_step + ((p_.s - 1) * p_.dilation_w + 1) * p_.c;
  }

  /// Prefetches a part of the next unit's input with each output row, so that filling its strip does not wait for
  /// memory. Only if that input follows this unit's input in memory.
  void prefetch_input(std::int64_t row) const {
    if (!p_.nhwc && b_.units.row_blocks > 1) return;
    const std::int64_t image = p_.c * p_.h * p_.w * static_cast<std::int64_t>(size_of(p_.dtype));
    const std::int64_t unit = image / b_.units.row_blocks;
    const std::int64_t begin = image_ * image + (first_row_ / b_.units.rows + 1) * unit;
    const char* x = static_cast<const char*>(run_.x);
    const std::int64_t end = std::min(begin + (row + 1) * unit / rows_, p_.n * image);
    for (std::int64_t i = begin + row * unit / rows_; i < end; i += 64) hwy::Prefetch(x + i);
  }

  FewTileCall tile_call() const {
    return {.x = workspace_,
            .x_row = p_.stride_h * b_.strip.row,
            .x_px = b_.strip.pixel_step,
            .offsets = run_.offsets,
            .runs = few_channels_steps(p_) / b_.strip.run_steps,
            .run_steps = b_.strip.run_steps,
            .weights = run_.packed,
            .bias = run_.bias};
  }

  void compute_pixel_lanes() const {
    FewPixelLanesCall call{};
    call.tile = tile_call();
    call.channels = p_.k;
    call.pixels = conv_pixels(p_);
    call.planes = workspace_ + b_.workspace.planes_offset;
    call.pitch = b_.workspace.plane_pitch;
    const std::int64_t step = b_.tile.rows / pool_side(p_);
    for (std::int64_t row = 0; row < rows_; row += step) {
      const std::int64_t end = std::min(row + step, rows_);
      call.tile.x = workspace_ + row * pool_side(p_) * call.tile.x_row;
      for (std::int64_t i = row; i < end; ++i) prefetch_input(i);
      (pool_side(p_) == 2 ? run_.kernels.pixel_lanes_pool : run_.kernels.pixel_lanes)(call);
      for (std::int64_t i = row; i < end; ++i) store_planes(i, call.planes + (i - row) * p_.k * call.pitch);
    }
    if (p_.nhwc) finish(workspace_ + b_.workspace.out_offset, y_at(0, 0), rows_ * p_.out_w() * p_.k);
  }

  /// Stores one output row of all channels: NCHW into y, NHWC into the unit's results.
  void store_planes(std::int64_t row, const float* planes) const {
    const std::int64_t pitch = b_.workspace.plane_pitch;
    if (!p_.nhwc) {
      for (std::int64_t c = 0; c < p_.k; ++c) finish(planes + c * pitch, y_at(row, c), p_.out_w());
      return;
    }
    run_.kernels.interleave({.planes = planes,
                             .pitch = pitch,
                             .channels = p_.k,
                             .pixels = p_.out_w(),
                             .y = workspace_ + b_.workspace.out_offset + row * p_.out_w() * p_.k,
                             .pixel_of = run_.pixel_of,
                             .channel_of = run_.channel_of});
  }

  void finish(const float* from, void* y, std::int64_t count) const {
    run_.kernels.finish[static_cast<std::size_t>(p_.dtype)](
        {.x = from, .y = y, .count = count, .activation = p_.activation});
  }

  void compute_channel_lanes() const {
    const std::int64_t lanes = run_.kernels.lanes;
    const std::int64_t padded = round_up(p_.k, lanes);
    const bool stores = b_.tile.stores_output;
    FewChannelLanesCall call{};
    call.y_type = stores ? p_.dtype : DType::f32;
    call.y_px = stores ? p_.k : padded;
    call.activation = stores ? p_.activation : Activation::none;
    call.non_temporal = run_.non_temporal;
    call.prefetch_pixels = prefetch_pixels();
    for (std::int64_t lane = 0; lane < padded; lane += b_.tile.vectors * lanes) {
      const std::int64_t vectors = std::min(b_.tile.vectors, (padded - lane) / lanes);
      call.valid = static_cast<int>(std::min(vectors * lanes, call.y_px - lane));
      const FewRow tiles = few_row(p_, b_.tile, b_.strip, run_.kernels, vectors);
      for (std::int64_t row = 0; row < rows_; ++row) {
        if (lane == 0) prefetch_input(row);
        call.tile = tile_call();
        call.tile.weights += lane * few_channels_steps(p_);
        call.tile.bias += lane;
        call.tile.x += row * pool_side(p_) * call.tile.x_row;
        skip_padding(row, vectors * lanes, call.tile);
        void* out = stores ? y_at(row, lane) : workspace_ + b_.workspace.out_offset + row * p_.out_w() * padded + lane;
        compute_row(call, tiles, row, out, static_cast<std::size_t>(vectors));
      }
    }
    if (!stores) store_results(padded);
  }

  /// Pixels of the next tile that each run prefetches, so that the runs of one tile prefetch all of them.
  std::int64_t prefetch_pixels() const {
    if (!b_.tile.stores_output || run_.non_temporal) return 0;
    const std::int64_t widest = widest_tile(run_.kernels, b_.tile) / pool_side(p_);
    return ceil_div(widest, few_channels_steps(p_) / b_.strip.run_steps);
  }

  /// Skips kernel rows that read only padding above or below the image, for every row of the tile.
  void skip_padding(std::int64_t row, std::int64_t width, FewTileCall& tile) const {
    const std::int64_t first = (first_row_ + row) * pool_side(p_) * p_.stride_h - p_.pad_top;
    const std::int64_t last = first + (pool_side(p_) - 1) * p_.stride_h;
    const std::int64_t begin = taps_before(last, 0, p_.dilation_h, p_.r);
    const std::int64_t end = std::max(begin, taps_before(first, p_.h, p_.dilation_h, p_.r));
    const std::int64_t runs = tile.runs / p_.r;  // of a row
    tile.offsets += begin * runs;
    tile.weights += begin * runs * tile.run_steps * width;
    tile.runs = (end - begin) * runs;
  }

  /// What the first tap of (row, column 0) reads in the image, if that were inside.
  const float* image_row(std::int64_t row) const {
    const std::int64_t x_row = (first_row_ + row) * p_.stride_h - p_.pad_top;
    return static_cast<const float*>(x_image()) + (x_row * p_.w - p_.pad_left) * p_.c;
  }

  void compute_row(FewChannelLanesCall& call, const FewRow& tiles, std::int64_t row, void* out,
                   std::size_t vectors) const {
    const std::int64_t side = pool_side(p_);
    const auto& functions = (side == 2 ? run_.kernels.row_pair : run_.kernels.row)[vectors];
    const FewTileCall strip = call.tile;
    const bool reads_image = b_.in_place.any();
    const float* const image = reads_image ? image_row(row) : nullptr;
    const std::int32_t* const image_offsets =
        reads_image ? run_.image_offsets + (strip.offsets - run_.offsets) : nullptr;
    std::int64_t pixel = 0;
    for (std::int64_t tile = 0; tile < tiles.tiles.count; ++tile) {
      const std::int64_t width = tiles.tiles.width(tile);
      const bool in_place = reads_image && tile >= tiles.first_in_place && tile < tiles.end_in_place;
      call.tile.x = (in_place ? image : strip.x) + pixel * side * strip.x_px;
      call.tile.offsets = in_place ? image_offsets : strip.offsets;
      call.y = advance(out, call.y_type, pixel * call.y_px);
      functions[width * side](call);
      pixel += width;
    }
  }

  /// The unit's results through Conv2dPlan's store kernels: activation, conversion and layout.
  void store_results(std::int64_t padded) const {
    const StripKernels& kernels = strip_kernels(run_.target);
    for (std::int64_t lane = 0; lane < p_.k; lane += kPartitionLanes) {
      StoreCall call{};
      call.strip = {.first = workspace_ + b_.workspace.out_offset + lane,
                    .row = 0,
                    .px = padded,
                    .padded_lanes = static_cast<int>(std::min<std::int64_t>(kPartitionLanes, padded - lane))};
      call.epilogue.activation = p_.activation;
      // Rows are contiguous in the results and in y, so all are stored as one row of full blocks of pixels.
      call.output = {.y = y_at(0, lane),
                     .row = 0,
                     .px = p_.nhwc ? p_.k : 1,
                     .channel = p_.nhwc ? 1 : p_.out_h() * p_.out_w(),
                     .rows = 1,
                     .pixels = rows_ * p_.out_w(),
                     .lanes = static_cast<int>(std::min<std::int64_t>(kPartitionLanes, p_.k - lane))};
      call.block = workspace_ + b_.workspace.planes_offset;
      (p_.nhwc ? kernels.store_nhwc : kernels.store_nchw)[static_cast<std::size_t>(p_.dtype)](call);
    }
  }

  const FewChannelsRun& run_;
  const Conv2dProblem& p_;
  const FewChannelsBlocking& b_;
  float* workspace_;
  std::int64_t image_, first_row_, rows_;  // of the output
};

}  // namespace

void compute_few_channels_unit(const FewChannelsRun& run, std::int64_t index, float* workspace) {
  Unit(run, index, workspace).compute();
}

}  // namespace gable::cpu
