// The loop nest: units over threads; in a unit chunk > panel > row > register tile (see conv2d_blocking.h). It only
// computes addresses; everything that touches an element is a kernel of conv2d_kernels.h.
#include "cpu/direct/conv2d_run.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"

namespace gable::cpu {
namespace {

/// Element strides of a tensor of the problem's layout.
struct Strides {
  std::int64_t image, row, pixel, channel;
};

Strides make_strides(bool nhwc, std::int64_t channels, std::int64_t h, std::int64_t w) {
  return nhwc ? Strides{h * w * channels, w * channels, channels, 1} : Strides{channels * h * w, w, 1, h * w};
}

const void* advance(const void* data, DType type, std::int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(size_of(type));
}
void* advance(void* data, DType type, std::int64_t elements) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(size_of(type));
}

/// Where the tile kernel reads a unit's input.
struct Input {
  const float* x;
  std::int64_t row, pixel, kh, kw, tile, lane;  // strides of TileCall
};

/// One unit of work: its coordinates, and the passes over it.
class Unit {
 public:
  Unit(const Conv2dRun& run, std::int64_t index, int thread)
      : run_(run),
        p_(run.problem),
        b_(run.blocking),
        g_(run.blocking.geometry),
        workspace_(run.workspace + static_cast<std::size_t>(thread) * b_.thread_floats),
        x_strides_(make_strides(p_.nhwc, p_.c, g_.h, g_.w)),
        y_strides_(make_strides(p_.nhwc, p_.k, g_.out_h, g_.out_w)) {
    const std::int64_t tiles = g_.groups * b_.out_tiles;
    const std::int64_t spots = b_.units / tiles;
    const std::int64_t tile = b_.weights_once ? index / spots : index % tiles;
    index = b_.weights_once ? index % spots : index / tiles;
    const std::int64_t out_tile = tile % b_.out_tiles;
    group_ = tile / b_.out_tiles;
    first_pixel_ = (index % b_.pixel_blocks) * b_.unit_pixels;
    index /= b_.pixel_blocks;
    first_row_ = (index % b_.row_blocks) * b_.unit_rows;
    first_image_ = index / b_.row_blocks * b_.unit_images;
    images_ = std::min(b_.unit_images, g_.n - first_image_);

    rows_ = std::min(b_.unit_rows, g_.out_h - first_row_);
    pixels_ = std::min(b_.unit_pixels, g_.out_w - first_pixel_);
    conv_row_ = first_row_ * p_.pool.stride_h;
    conv_rows_ = Conv2dBlocking::conv_extent(rows_, p_.pool.h, p_.pool.stride_h);
    conv_pixel_ = first_pixel_ * p_.pool.stride_w;
    conv_pixels_ = Conv2dBlocking::conv_extent(pixels_, p_.pool.w, p_.pool.stride_w);
    first_lane_ = out_tile * kPartitionLanes;
    lanes_ = std::min<std::int64_t>(kPartitionLanes, g_.group_k - first_lane_);
    padded_lanes_ = round_up(lanes_, run.kernels.lanes);
    x_row_ = conv_row_ * p_.stride_h - p_.pad_top;
    x_column_ = conv_pixel_ * p_.stride_w - p_.pad_left;
  }

  void compute() const {
    const float* bias = padded_bias();
    const Source source = choose_source();
    for (std::int64_t chunk = 0; chunk < b_.chunks; ++chunk) {
      const std::int64_t channel = chunk * b_.chunk_channels;
      const std::int64_t channels = std::min(b_.chunk_channels, g_.group_c - channel);
      const Inputs inputs = make_inputs(source, channel, channels);
      for (std::int64_t lane = 0; lane < padded_lanes_; lane += b_.panel_lanes) {
        compute_panel(inputs, channel, channels, lane, bias);
      }
    }
    if (!b_.tile_stores) store(bias);
    if (run_.stream) hwy::FlushStream();
  }

 private:
  /// Where the unit's pixels are read: those before left_end and from right_begin on in staged strips, others in place.
  struct Source {
    std::int64_t left_end, right_begin;
  };
  /// Its inputs; x of the right one is where its first pixel, right_begin, is.
  struct Inputs {
    Source source;
    Input left, middle, right;
  };

  Tiles tiles() const { return {conv_pixels_, b_.tile_pixels, b_.row_pair ? 2 : 1}; }

  /// Strips only for the tiles that touch the padding left and right, where tiles between them touch none; where the
  /// image is not f32 NHWC, one strip for all.
  Source choose_source() const {
    const Source in_place{0, conv_pixels_};
    const Source staged{conv_pixels_, conv_pixels_};
    if (b_.never_staged) return in_place;
    if (p_.dtype != DType::f32 || !p_.nhwc || (g_.depthwise && lanes_ != padded_lanes_)) return staged;
    const std::int64_t last_row = x_row_ + (conv_rows_ - 1) * p_.stride_h + (p_.r - 1) * p_.dilation_h;
    // A depthwise row pair reads all its kernel rows; others leave out those in the padding (choose_kernel_rows).
    if (b_.row_pair && g_.depthwise && (x_row_ < 0 || last_row >= g_.h)) return staged;
    const std::int64_t reach = (p_.s - 1) * p_.dilation_w;
    const Tiles cut = tiles();
    std::int64_t first = 0, last = cut.count;
    while (first < last && x_column_ + cut.begin(first) * p_.stride_w < 0) ++first;
    while (last > first && x_column_ + (cut.begin(last) - 1) * p_.stride_w + reach >= g_.w) --last;
    if (first == last) return staged;
    const Source split{cut.begin(first), cut.begin(last)};
    const std::int64_t split_positions =
        strip_columns(split.left_end) + strip_columns(conv_pixels_ - split.right_begin);
    return split_positions <= strip_columns(conv_pixels_) ? split : staged;
  }

  std::int64_t strip_columns(std::int64_t pixels) const { return pixels == 0 ? 0 : b_.columns.positions(pixels); }

  Inputs make_inputs(const Source& source, std::int64_t channel, std::int64_t channels) const {
    const auto [left_end, right_begin] = source;
    Inputs inputs{source, {}, {}, {}};
    float* right_strip = workspace_;
    if (left_end > 0) {
      inputs.left = stage(0, left_end, channel, channels, workspace_);
      const std::int64_t depth = g_.depthwise ? padded_lanes_ : round_up(channels, b_.in_lanes);
      right_strip += b_.rows.positions(conv_rows_) * strip_columns(left_end) * depth;
    }
    if (left_end < right_begin) inputs.middle = in_place_input(channel);
    if (right_begin < conv_pixels_) {
      inputs.right = stage(right_begin, conv_pixels_ - right_begin, channel, channels, right_strip);
    }
    if (left_end > 0 || right_begin < conv_pixels_) note_path(stage_path(), run_.target);
    if (left_end < right_begin) note_path(Path::conv2d_direct_input, run_.target);
    if (left_end > 0 && left_end < right_begin) note_path(Path::conv2d_edge_strips, run_.target);
    return inputs;
  }

  /// Depthwise reads the channels of its own lanes; others read a chunk of the group's channels.
  std::int64_t input_channel(std::int64_t chunk_channel) const {
    return g_.depthwise ? first_lane_ : group_ * g_.group_c + chunk_channel;
  }

  Path stage_path() const {
    if (p_.nhwc) return Path::conv2d_stage_nhwc;
    return g_.depthwise ? Path::conv2d_stage_nchw_lanes : Path::conv2d_stage_nchw;
  }

  Input in_place_input(std::int64_t chunk_channel) const {
    const float* x = static_cast<const float*>(run_.x) + first_image_ * x_strides_.image + x_row_ * x_strides_.row +
                     x_column_ * x_strides_.pixel + input_channel(chunk_channel);
    return {x,
            p_.stride_h * x_strides_.row,
            p_.stride_w * x_strides_.pixel,
            p_.dilation_h * x_strides_.row,
            p_.dilation_w * x_strides_.pixel,
            b_.in_lanes,
            1};
  }

  /// Stages what `pixels` pixels from first_pixel on read.
  Input stage(std::int64_t first_pixel, std::int64_t pixels, std::int64_t chunk_channel, std::int64_t channels,
              float* strip) const {
    const std::int64_t columns = b_.columns.positions(pixels);
    StageCall call;
    call.x =
        advance(run_.x, p_.dtype, first_image_ * x_strides_.image + input_channel(chunk_channel) * x_strides_.channel);
    call.x_row = x_strides_.row;
    call.x_px = x_strides_.pixel;
    call.x_channel = x_strides_.channel;
    call.height = g_.h;
    call.width = g_.w;
    call.rows = b_.rows;
    call.columns = b_.columns;
    call.row_positions = b_.rows.positions(conv_rows_);
    call.column_positions = columns;
    call.first_row = x_row_;
    call.first_column = x_column_ + first_pixel * p_.stride_w;
    call.channels = g_.depthwise ? lanes_ : channels;
    call.in_lanes = g_.depthwise ? padded_lanes_ : b_.in_lanes;
    call.strip = strip;

    const std::size_t type = static_cast<std::size_t>(p_.dtype);
    const bool pixel_major = p_.nhwc || g_.depthwise;
    const Conv2dKernels& kernels = run_.kernels;
    (p_.nhwc ? kernels.stage_nhwc : g_.depthwise ? kernels.stage_nchw_lanes : kernels.stage_nchw)[type](call);

    const std::int64_t pixel = pixel_major ? call.in_lanes : 1;
    const std::int64_t row = columns * (pixel_major ? round_up(call.channels, call.in_lanes) : call.channels);
    return {strip,
            b_.rows.output_step * row,
            b_.columns.output_step * pixel,
            b_.rows.tap_step * row,
            b_.columns.tap_step * pixel,
            columns * call.in_lanes,
            pixel_major ? 1 : columns};
  }

  /// The unit's bias in whole vectors.
  const float* padded_bias() const {
    if (run_.bias == nullptr) return nullptr;
    const float* bias = run_.bias + group_ * g_.group_k + first_lane_;
    if (lanes_ == padded_lanes_) return bias;
    float* copy = workspace_ + b_.bias_offset;
    std::copy_n(bias, lanes_, copy);
    return copy;
  }

  void compute_panel(const Inputs& inputs, std::int64_t channel, std::int64_t channels, std::int64_t lane,
                     const float* bias) const {
    const std::int64_t vector_lanes = run_.kernels.lanes;
    const std::int64_t panel_lanes = std::min(b_.panel_lanes, padded_lanes_ - lane);
    const std::int64_t taps = p_.r * p_.s;
    const std::int64_t group_lanes = round_up(g_.group_k, vector_lanes);
    TileCall call;
    call.weights =
        run_.packed + (group_ * group_lanes + first_lane_ + lane) * g_.group_c * taps + channel * taps * panel_lanes;
    call.kernel_h = p_.r;
    call.kernel_w = p_.s;
    call.in_tiles = ceil_div(channels, b_.in_lanes);
    call.in_lanes = b_.in_lanes;
    call.last_in_lanes = channels - (call.in_tiles - 1) * b_.in_lanes;
    if (g_.depthwise) {
      // The taps of a kernel row take the place of input lanes.
      call.kernel_w = 1;
      call.in_lanes = call.last_in_lanes = p_.s;
    }
    call.load_partial = channel > 0;
    call.store_partial = channel + channels < g_.group_c && !g_.depthwise;
    call.partial_row = (b_.image_pair ? conv_rows_ : 1) * conv_pixels_ * padded_lanes_;
    call.partial_px = b_.chunks == 1 ? b_.panel_lanes : padded_lanes_;
    call.halo = (p_.s - 1) * p_.dilation_w / p_.stride_w;
    call.asking_taps = g_.depthwise ? 1 : std::min(p_.s, ceil_div(p_.stride_w, p_.dilation_w));
    call.above = nullptr;
    call.lanes = static_cast<int>(b_.tile_stores ? std::min(panel_lanes, lanes_ - lane) : panel_lanes);
    call.y_row = y_strides_.image;
    call.y_px = b_.tile_stores ? y_strides_.pixel : padded_lanes_;
    call.bias = b_.tile_stores && bias != nullptr ? bias + lane : nullptr;
    call.stream = run_.stream;
    call.relu = b_.tile_stores && p_.activation == Activation::relu;
    compute_rows(call, inputs, lane, static_cast<std::size_t>(panel_lanes / vector_lanes));
  }

  void read_from(TileCall& call, const Input& input) const {
    call.x_row = input.row;
    call.x_px = input.pixel;
    call.x_kh = input.kh;
    call.x_kw = g_.depthwise ? 0 : input.kw;
    call.x_tile = input.tile;
    call.x_lane = g_.depthwise ? input.kw : input.lane;
  }

  void compute_rows(TileCall& call, const Inputs& inputs, std::int64_t lane, std::size_t vectors) const {
    const Conv2dKernels& k = run_.kernels;
    const TileFunction* functions = (!g_.depthwise ? k.tile[vectors]
                                     : b_.row_pair ? k.depthwise_row_pair[vectors]
                                                   : k.depthwise[vectors]);
    const Tiles cut = tiles();
    for (std::int64_t image = 0; image < images_;) {
      const bool pair = b_.image_pair && image + 1 < images_;
      compute_image(call, inputs, lane, pair ? run_.kernels.image_pair[vectors] : functions, cut, image, pair);
      image += pair ? 2 : 1;
    }
  }

  /// The rows of one image, or with `pair` of two.
  void compute_image(TileCall& call, const Inputs& inputs, std::int64_t lane, const TileFunction* functions,
                     const Tiles& cut, std::int64_t image, bool pair) const {
    const auto [left_end, right_begin] = inputs.source;
    for (std::int64_t row = 0; row < conv_rows_; row += cut.step) {
      std::int64_t pixel = 0;
      for (std::int64_t tile = 0; tile < cut.count; ++tile) {
        const std::int64_t width = cut.width(tile);
        const bool right = pixel >= right_begin;
        const Input& input = pixel < left_end ? inputs.left : right ? inputs.right : inputs.middle;
        read_from(call, input);
        if (pair) call.x_row = x_strides_.image;
        choose_kernel_columns(call, input.x == inputs.middle.x, x_column_ + pixel * p_.stride_w, width);
        call.x = image * x_strides_.image + input.x + (g_.depthwise ? lane : 0) + row * input.row +
                 (pixel - (right ? right_begin : 0)) * input.pixel;
        call.y = output(row / cut.step, pixel / cut.step, lane) + image * y_strides_.image;
        compute_tile(call, functions[width], image, row, pixel, lane);
        pixel += width;
      }
    }
  }

  /// One row, or the two of a pool: the first one's sums wait for the second.
  void compute_tile(TileCall& call, TileFunction function, std::int64_t image, std::int64_t row, std::int64_t pixel,
                    std::int64_t lane) const {
    choose_kernel_rows(call, row);
    call.partial = partial(image, row, pixel, lane);
    if (!b_.row_pair || g_.depthwise) {
      function(call);
      return;
    }
    const bool ends = !call.store_partial;
    call.above = nullptr;
    call.store_partial = true;
    function(call);
    if (ends) call.above = call.partial;
    call.store_partial = !ends;
    choose_kernel_rows(call, row + 1);
    call.partial = partial(image, row + 1, pixel, lane);
    call.x += call.x_row;
    function(call);
  }

  /// Where sums wait for the next chunk, or else for the row below.
  float* partial(std::int64_t image, std::int64_t row, std::int64_t pixel, std::int64_t lane) const {
    if (b_.chunks == 1) return workspace_ + b_.above_offset;
    return workspace_ + b_.partial_offset + ((image * conv_rows_ + row) * conv_pixels_ + pixel) * padded_lanes_ + lane;
  }

  /// Leaves out kernel rows that lie in the padding; not of a depthwise pair of rows, whose padding is staged.
  void choose_kernel_rows(TileCall& call, std::int64_t row) const {
    const bool whole = b_.row_pair && g_.depthwise;
    const std::int64_t first = x_row_ + row * p_.stride_h;
    call.kh_begin = whole ? 0 : taps_before(first, 0, p_.dilation_h, p_.r);
    call.kh_end = whole ? p_.r : std::max(call.kh_begin, taps_before(first, g_.h, p_.dilation_h, p_.r));
  }

  /// A tile that reads the image in place leaves out its first or last pixel where that lies in the padding.
  void choose_kernel_columns(TileCall& call, bool in_place, std::int64_t first, std::int64_t width) const {
    call.left_taps = 0;
    call.right_tap = call.kernel_w;
    if (!in_place || g_.depthwise) return;
    call.left_taps = taps_before(first, 0, p_.dilation_w, p_.s);
    call.right_tap = taps_before(first + (width - 1) * p_.stride_w, g_.w, p_.dilation_w, p_.s);
  }

  /// Where the tile kernel stores: the result, or the strip.
  float* output(std::int64_t row, std::int64_t pixel, std::int64_t lane) const {
    if (b_.tile_stores) return static_cast<float*>(run_.y) + output_offset(row, pixel) + lane;
    const std::int64_t strip_pixels = b_.row_pair ? pixels_ : conv_pixels_;
    return workspace_ + b_.strip_offset + (row * strip_pixels + pixel) * padded_lanes_ + lane;
  }
  std::int64_t output_offset(std::int64_t row, std::int64_t pixel) const {
    return first_image_ * y_strides_.image + (first_row_ + row) * y_strides_.row +
           (first_pixel_ + pixel) * y_strides_.pixel + (group_ * g_.group_k + first_lane_) * y_strides_.channel;
  }

  void store(const float* bias) const {
    const bool pooled = p_.pool.none() || b_.row_pair;
    StoreCall call;
    call.strip = workspace_ + b_.strip_offset;
    call.strip_px = padded_lanes_;
    call.strip_row = padded_lanes_ * (b_.row_pair ? pixels_ : conv_pixels_);
    call.lanes = static_cast<int>(lanes_);
    call.padded_lanes = static_cast<int>(padded_lanes_);
    call.rows = rows_;
    call.pixels = pixels_;
    call.pool_h = pooled ? 1 : p_.pool.h;
    call.pool_w = pooled ? 1 : p_.pool.w;
    call.pool_stride_h = pooled ? 1 : p_.pool.stride_h;
    call.pool_stride_w = pooled ? 1 : p_.pool.stride_w;
    call.bias = bias;
    call.activation = p_.activation;
    call.y = advance(run_.y, p_.dtype, output_offset(0, 0));
    call.y_row = y_strides_.row;
    call.y_px = y_strides_.pixel;
    call.y_channel = y_strides_.channel;
    call.block = workspace_ + b_.block_offset;
    (p_.nhwc ? run_.kernels.store_nhwc : run_.kernels.store_nchw)[static_cast<std::size_t>(p_.dtype)](call);
  }

  const Conv2dRun& run_;
  const Conv2dProblem& p_;
  const Conv2dBlocking& b_;
  const Conv2dGeometry& g_;
  float* workspace_;
  Strides x_strides_, y_strides_;
  std::int64_t first_image_, images_, group_, first_row_, first_pixel_, first_lane_;  // of the output
  std::int64_t rows_, pixels_, lanes_, padded_lanes_;                                 // of the output
  std::int64_t conv_row_, conv_rows_, conv_pixel_, conv_pixels_;                      // before the pool
  std::int64_t x_row_, x_column_;  // input under (first output, first tap)
};

void note_plan_paths(const Conv2dRun& run) {
  const Conv2dBlocking& b = run.blocking;
  if (b.geometry.depthwise) {
    note_path(b.row_pair ? Path::conv2d_depthwise_row_pair : Path::conv2d_depthwise, run.target);
  } else {
    note_path(b.row_pair     ? Path::conv2d_row_pair
              : b.image_pair ? Path::conv2d_image_pair
                             : Path::conv2d_tile,
              run.target);
  }
  if (run.stream) note_path(Path::conv2d_stream, run.target);
  if (b.trims) note_path(Path::conv2d_trims, run.target);
  if (b.chunks > 1) note_path(Path::conv2d_partial_sums, run.target);
  if (!b.tile_stores) {
    note_path(run.problem.nhwc ? Path::conv2d_store_nhwc : Path::conv2d_store_nchw, run.target);
  }
}

}  // namespace

void run_conv2d(const Conv2dRun& run, int threads) {
  note_plan_paths(run);
  parallel_units(threads, run.blocking.units,
                 [&run](std::int64_t unit, int thread) { Unit(run, unit, thread).compute(); });
}

}  // namespace gable::cpu
