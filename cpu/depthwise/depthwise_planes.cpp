// Which problems the NCHW depthwise kernel takes, how they are cut, and the passes over a unit's planes. A unit's input
// rows and results stay in L1 where a plane does.
#include "cpu/depthwise/depthwise_planes.h"

#include <algorithm>
#include <cmath>

#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/unit_description.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kUnitFloats = 10 << 10;
/// A group's pixels stay in L2, and mostly in L1.
constexpr std::int64_t kMostTransposedPixels = 1024;
/// Pointwise planes of fewer pixels would be rows too short for the work around them.
constexpr std::int64_t kLeastPointwiseRow = 128;

Conv2dProblem with_planes_in_a_row(Conv2dProblem p) {
  if (!is_pointwise(p) || p.h * p.w < kLeastPointwiseRow) return p;
  p.w = p.wo = p.h * p.w;
  p.h = p.ho = 1;
  return p;
}

class Blocking {
 public:
  Blocking(const Conv2dProblem& problem, const Target& target, int threads)
      : p_(with_planes_in_a_row(problem)), threads_(threads) {
    b_.problem = p_;
    b_.transposes = p_.k == p_.c && p_.wo < 2 * depthwise_tiles(target).lanes && p_.h * p_.w <= kMostTransposedPixels;
    if (b_.transposes) {
      const Target* half = half_width_target(target);
      add_section(half != nullptr && p_.k <= depthwise_tiles(*half).lanes ? *half : target, 0, 1);
      return;
    }
    choose_sections(target);
    const bool whole = b_.sections.front().lanes <= p_.wo;
    b_.in_place = whole && p_.dtype == DType::f32 && p_.stride_w == 1 && !column_axis(p_).padded();
    b_.stores_rows = !whole || p_.dtype != DType::f32 || p_.activation == Activation::tanh;
  }

  PlanesBlocking run() {
    if (b_.transposes) return run_transposed();
    choose_rows();
    const std::int64_t fair = threads_ == 1 ? p_.k : std::max<std::int64_t>(1, p_.n * p_.k / units_wanted(threads_));
    const std::int64_t fitting = std::max<std::int64_t>(1, kUnitFloats / std::max<std::int64_t>(1, b_.plane_floats));
    b_.unit_planes = b_.row_blocks > 1 ? 1 : std::min({p_.k, fair, fitting});
    b_.plane_blocks = ceil_div(p_.k, b_.unit_planes);
    b_.weight_floats = static_cast<std::int64_t>(line_floats((p_.r * p_.s + 1) * b_.sections.front().lanes));
    b_.thread_floats = b_.weight_floats + b_.unit_planes * b_.plane_floats;
    cut_rows();
    return b_;
  }

  /// The size of the table, counted without making it.
  std::int64_t table_pieces() {
    const AxisCut rows(row_axis(p_));
    if (b_.transposes) return std::max(p_.ho, rows.most_positions(p_.ho, kMaxTileOutputs));
    choose_rows();
    return b_.row_blocks * rows.most_positions(b_.unit_rows, kMaxTileOutputs);
  }

 private:
  /// Tries ever more blocks of rows, skipping numbers that do not make a block smaller.
  void choose_rows() {
    for (std::int64_t rows = p_.ho;; rows = ceil_div(p_.ho, ceil_div(p_.ho, rows - 1))) {
      b_.unit_rows = std::min(p_.ho, round_up(rows, tile_rows()));
      lay_out();
      if (!too_large() || b_.unit_rows <= tile_rows()) break;
    }
    b_.row_blocks = ceil_div(p_.ho, b_.unit_rows);
  }

  PlanesBlocking run_transposed() {
    const std::int64_t lanes = b_.sections.front().lanes;
    b_.stores_rows = true;
    b_.unit_planes = lanes;
    b_.plane_blocks = ceil_div(p_.k, lanes);
    b_.unit_rows = p_.ho;
    b_.row_blocks = 1;
    b_.pitch = p_.w * lanes;
    const std::int64_t results = p_.ho * p_.wo * lanes;
    b_.input_floats = static_cast<std::int64_t>(line_floats(p_.h * b_.pitch));
    b_.plane_floats = b_.input_floats + static_cast<std::int64_t>(line_floats(results));
    b_.weight_floats = static_cast<std::int64_t>(line_floats((p_.r * p_.s + 1) * lanes));
    b_.thread_floats = b_.weight_floats + b_.plane_floats + std::max(b_.input_floats, results);
    const WindowAxis columns = column_axis(p_);
    for (std::int64_t i = 0; i < p_.wo; ++i) b_.columns.push_back(columns.inside(i));
    cut_rows();
    return b_;
  }

  void cut_rows() {
    const AxisCut rows(row_axis(p_));
    b_.position_step = rows.position_step();
    b_.output_step = rows.output_step();
    b_.tile_stride = rows.tile_stride();
    b_.row_runs = rows.runs();
    for (std::int64_t i = 0; i < b_.row_blocks; ++i) {
      const std::int64_t first = i * b_.unit_rows;
      b_.tiles.push_back(rows.tiles(first, std::min(first + b_.unit_rows, p_.ho), kMaxTileOutputs, b_.positions));
    }
    for (const RowSection& section : b_.sections) list_runs(section, rows);
  }

  /// Whole vectors, and one of half the lanes where that holds the rest.
  void choose_sections(const Target& target) {
    const std::int64_t lanes = depthwise_tiles(target).lanes;
    const Target* half = half_width_target(target);
    const std::int64_t rest = p_.wo % lanes;
    if (half == nullptr || rest == 0 || rest > lanes / 2) {
      add_section(target, 0, p_.wo);
    } else if (p_.wo < lanes) {
      add_section(*half, 0, p_.wo);
    } else {
      add_section(target, 0, p_.wo - rest);
      add_section(*half, p_.wo - lanes / 2, lanes / 2);
    }
  }
  void add_section(const Target& target, std::int64_t first, std::int64_t pixels) {
    const DepthwiseTiles& tiles = depthwise_tiles(target);
    b_.sections.push_back({&tiles, &depthwise_plane_kernels(target), tiles.lanes, first, ceil_div(pixels, tiles.lanes),
                           std::max<std::int64_t>(0, pixels - tiles.lanes)});
  }

  std::int64_t tile_rows() const { return std::min<std::int64_t>(p_.ho, kMaxTileOutputs); }
  bool too_large() const {
    const bool too_few = p_.n * p_.k * ceil_div(p_.ho, b_.unit_rows) < units_wanted(threads_);
    return too_few || b_.plane_floats > kUnitFloats;
  }

  /// Sizes of a plane's part for b_.unit_rows rows.
  void lay_out() {
    const std::int64_t lanes = b_.sections.front().lanes;
    const std::int64_t columns = std::max(p_.wo, lanes);
    const std::int64_t reach = (p_.s - 1) * p_.dilation_w;
    // Outputs and the furthest tap, or the image with a vector past its end.
    const std::int64_t width = ceil_div(p_.pad_left + p_.w, p_.stride_w) + lanes;
    b_.pitch = std::max(columns + reach / p_.stride_w, width);
    const std::int64_t rows = std::min(p_.h, (b_.unit_rows - 1) * p_.stride_h + (p_.r - 1) * p_.dilation_h + 1);
    b_.phase_floats = static_cast<std::int64_t>(line_floats(rows * b_.pitch + lanes));
    b_.input_floats = b_.in_place ? 0 : p_.stride_w * b_.phase_floats;
    b_.result_pitch = round_up(columns, lanes);
    const std::int64_t results = b_.stores_rows ? b_.unit_rows * b_.result_pitch : 0;
    b_.plane_floats = b_.input_floats + static_cast<std::int64_t>(line_floats(results));
  }

  /// Taps of a kernel column are neighbours along the tile.
  void list_runs(const RowSection& section, const AxisCut& rows) {
    std::vector<TapRun> runs;
    const std::int64_t pitch = b_.in_place ? p_.w : b_.pitch;
    for (std::int64_t kw = 0; kw < p_.s; ++kw) {
      const std::int64_t column = kw * p_.dilation_w;
      const std::int64_t at =
          b_.transposes ? column * section.lanes : column % p_.stride_w * b_.phase_floats + column / p_.stride_w;
      for (std::int64_t run = 0; run < rows.runs(); ++run) {
        const std::int64_t tap = rows.run_tap(run);
        runs.push_back({at + tap * p_.dilation_h * pitch, (kw * p_.r + tap) * section.lanes,
                        static_cast<std::int32_t>(rows.run_taps(run)), static_cast<std::int32_t>(run)});
      }
    }
    b_.runs.push_back(std::move(runs));
  }

  Conv2dProblem p_;
  int threads_;
  PlanesBlocking b_{};
};

}  // namespace

std::string depthwise_planes_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (!has_single_channel_groups(p)) {
    return text(p.groups) + (p.groups == 1 ? " group of " : " groups of ") + text(p.group_c()) +
           " input channels; it takes several groups of one each";
  }
  if (p.nhwc) return "layout nhwc: its lanes are pixels, which must be neighbours";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.r * p.s > kMostTablePieces) return text(p.r * p.s) + " filter taps; its table holds " + text(kMostTablePieces);
  if (const std::int64_t pieces = Blocking(p, target, 1).table_pieces(); pieces > kMostTablePieces)
    return text(pieces) + " pieces of a column; its table holds " + text(kMostTablePieces);
  return "";
}

PlanesBlocking depthwise_planes_blocking(const Conv2dProblem& problem, const Target& target, int threads) {
  return Blocking(problem, target, threads).run();
}

DepthwisePlanesPlan::DepthwisePlanesPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("depthwise_planes", problem, target, threads)),
      target_(&target),
      threads_(threads),
      blocking_(Blocking(problem, target, threads).run()),
      workspace_(static_cast<std::size_t>(threads * blocking_.thread_floats),
                 static_cast<std::size_t>(threads * blocking_.thread_floats)) {}

std::size_t DepthwisePlanesPlan::packed_bytes() const {
  return static_cast<std::size_t>(problem_.r * problem_.s * problem_.k) * sizeof(float);
}

Packing DepthwisePlanesPlan::packing() const { return packing_of(problem_, "depthwise_planes", {}); }

void DepthwisePlanesPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  auto* out = static_cast<float*>(packed);
  for (std::int64_t k = 0; k < p.k; ++k) {
    for (std::int64_t kw = 0; kw < p.s; ++kw) {
      for (std::int64_t kh = 0; kh < p.r; ++kh) {
        *out++ = element_as_f32(weights, p.dtype, k * strides.out + kh * strides.row + kw * strides.column);
      }
    }
  }
}

/// A run's pointers.
struct DepthwisePlanesPlan::Run {
  const char* x;
  const char* x_end;
  const float* packed;
  const float* bias;  // or null
  char* y;
};

/// One unit of work. Each pass goes through all its planes: a load that overlaps two stores still in the core's store
/// queue would stall; by the next pass they have left it.
class DepthwisePlanesPlan::Unit {
 public:
  Unit(const DepthwisePlanesPlan& plan, const Run& run, std::int64_t index, int thread)
      : b_(plan.blocking_),
        p_(plan.blocking_.problem),
        run_(run),
        element_(static_cast<std::int64_t>(size_of(p_.dtype))),
        multiplier_(p_.k / p_.c),
        image_(index / b_.row_blocks / b_.plane_blocks),
        first_(index / b_.row_blocks % b_.plane_blocks * b_.unit_planes),
        end_(std::min(first_ + b_.unit_planes, p_.k)),
        block_(index % b_.row_blocks),
        first_row_(block_ * b_.unit_rows),
        rows_(std::min(b_.unit_rows, p_.ho - first_row_)),
        weights_(plan.workspace_.data() + thread * b_.thread_floats) {
    const WindowAxis axis = row_axis(p_);
    const std::int64_t last = axis.first(first_row_ + rows_ - 1) + (p_.r - 1) * p_.dilation_h + 1;
    first_input_ = std::clamp<std::int64_t>(axis.first(first_row_), 0, p_.h);
    input_rows_ = std::max<std::int64_t>(0, std::min(last, p_.h) - first_input_);
  }

  void compute() {
    if (b_.transposes) return compute_group();
    if (!b_.in_place) {
      for (std::int64_t k = first_; k < end_; ++k) {
        if (k == first_ || k % multiplier_ == 0) stage(k);
      }
    }
    for (std::int64_t k = first_; k < end_; ++k) {
      for (std::size_t section = 0; section < b_.sections.size(); ++section) compute_plane(k, section);
    }
    if (!b_.stores_rows) return;
    const PlaneKernels& kernels = *b_.sections.front().planes;
    for (std::int64_t k = first_; k < end_; ++k) {
      kernels.finish[static_cast<int>(p_.dtype)]({.results = plane(k) + b_.input_floats,
                                                  .pitch = b_.result_pitch,
                                                  .y = output(k),
                                                  .y_end = output(end_ - 1) + rows_ * p_.wo * element_,
                                                  .rows = rows_,
                                                  .width = p_.wo,
                                                  .tanh = p_.activation == Activation::tanh});
    }
  }

 private:
  float* plane(std::int64_t k) const { return weights_ + b_.weight_floats + (k - first_) * b_.plane_floats; }
  /// The staged input rows of an output channel. Output channels of the same input channel share them.
  float* staged(std::int64_t k) const { return plane(std::max(first_, k / multiplier_ * multiplier_)); }
  const char* input(std::int64_t k) const {
    return run_.x + ((image_ * p_.c + k / multiplier_) * p_.h + first_input_) * p_.w * element_;
  }
  char* output(std::int64_t k) const { return run_.y + ((image_ * p_.k + k) * p_.ho + first_row_) * p_.wo * element_; }

  /// As many planes as a vector has lanes, one column of pixels after the other.
  void compute_group() const {
    const RowSection& section = b_.sections.front();
    const PlaneKernels& kernels = *section.planes;
    const std::int64_t taps = p_.r * p_.s, lanes = section.lanes, count = end_ - first_;
    float* x = plane(first_);
    float* y = x + b_.input_floats;
    float* scratch = x + b_.plane_floats;
    float* bias = weights_ + taps * lanes;
    kernels.transpose(run_.packed + first_ * taps, taps, weights_, lanes, count, taps);
    for (std::int64_t i = 0; i < count; ++i) bias[i] = run_.bias == nullptr ? 0.0F : run_.bias[first_ + i];
    kernels.to_pixels[static_cast<int>(p_.dtype)](
        {const_cast<char*>(input(first_)), x, scratch, count, p_.h * p_.w, false});
    DepthwiseTileCall call{};
    call.x_step = b_.position_step * b_.pitch;
    call.weights = weights_;
    call.y_step = b_.output_step * p_.wo * lanes;
    call.bias = bias;
    call.vectors = 1;
    call.least = p_.activation == Activation::relu ? 0.0F : -INFINITY;
    const WindowAxis columns = column_axis(p_);
    for (std::int64_t column = 0; column < p_.wo; ++column) {
      const TapRange inside = b_.columns[static_cast<std::size_t>(column)];
      call.runs = b_.runs.front().data() + inside.begin * b_.row_runs;
      call.run_count = (inside.end - inside.begin) * b_.row_runs;
      for (const AxisTile& tile : b_.tiles.front()) {
        call.tiles = tile.count;
        call.positions = b_.positions.data() + tile.positions_at;
        call.x = x + (tile.input * p_.w + columns.first(column)) * lanes;
        call.y = y + (tile.first * p_.wo + column) * lanes;
        section.tiles->tiles[static_cast<int>(DType::f32)][b_.tile_stride - 1][tile.outputs - 1](call);
      }
    }
    kernels.from_pixels[static_cast<int>(p_.dtype)](
        {output(first_), y, scratch, count, p_.ho * p_.wo, p_.activation == Activation::tanh});
  }

  void stage(std::int64_t k) const {
    b_.sections.front().planes->stage[static_cast<int>(p_.dtype)]({.x = input(k),
                                                                   .x_end = run_.x_end,
                                                                   .rows = input_rows_,
                                                                   .width = p_.w,
                                                                   .strip = staged(k),
                                                                   .pitch = b_.pitch,
                                                                   .phase_floats = b_.phase_floats,
                                                                   .pad_left = p_.pad_left,
                                                                   .stride = p_.stride_w});
  }

  void compute_plane(std::int64_t k, std::size_t index) const {
    const RowSection& section = b_.sections[index];
    const std::int64_t taps = p_.r * p_.s;
    section.planes->spread(run_.packed + k * taps, taps, weights_);
    const float bias = run_.bias == nullptr ? 0.0F : run_.bias[k];
    section.planes->spread(&bias, 1, weights_ + taps * section.lanes);
    const std::int64_t x_pitch = b_.in_place ? p_.w : b_.pitch;
    const std::int64_t y_pitch = b_.stores_rows ? b_.result_pitch : p_.wo;
    const float* x = (b_.in_place ? reinterpret_cast<const float*>(input(k)) : staged(k)) + section.first;
    float* y = (b_.stores_rows ? plane(k) + b_.input_floats : reinterpret_cast<float*>(output(k))) + section.first;
    DepthwiseTileCall call{};
    call.runs = b_.runs[index].data();
    call.run_count = static_cast<std::int64_t>(b_.runs[index].size());
    call.x_step = b_.position_step * x_pitch;
    call.weights = weights_;
    call.y_step = b_.output_step * y_pitch;
    call.bias = weights_ + taps * section.lanes;
    call.vectors = section.vectors;
    call.last = {section.last, section.last, 0};
    call.least = p_.activation == Activation::relu ? 0.0F : -INFINITY;
    for (const AxisTile& tile : b_.tiles[static_cast<std::size_t>(block_)]) {
      call.tiles = tile.count;
      call.positions = b_.positions.data() + tile.positions_at;
      call.x = x + (tile.input - first_input_) * x_pitch;
      call.y = y + (tile.first - first_row_) * y_pitch;
      section.tiles->tiles[static_cast<int>(DType::f32)][b_.tile_stride - 1][tile.outputs - 1](call);
    }
  }

  const PlanesBlocking& b_;
  const Conv2dProblem& p_;
  const Run& run_;
  std::int64_t element_, multiplier_, image_, first_, end_, block_, first_row_, rows_;
  std::int64_t first_input_ = 0, input_rows_ = 0;
  float* weights_;  // of the plane that is computed, as vectors
};

void DepthwisePlanesPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Conv2dProblem& p = problem_;
  if (blocking_.transposes) {
    note_path(Path::depthwise_planes_transposed, *target_);
  } else {
    note_path(blocking_.in_place ? Path::depthwise_planes_in_place : Path::depthwise_planes_staged, *target_);
    note_path(blocking_.stores_rows ? Path::depthwise_planes_rows : Path::depthwise_planes_direct, *target_);
  }
  const auto* first = static_cast<const char*>(x);
  const Run call{first, first + p.x_elements() * static_cast<std::int64_t>(size_of(p.dtype)),
                 static_cast<const float*>(packed), p.bias ? bias : nullptr, static_cast<char*>(y)};
  parallel_units(threads_, p.n * blocking_.plane_blocks * blocking_.row_blocks,
                 [&](std::int64_t unit, int thread) { Unit(*this, call, unit, thread).compute(); });
}

Conv2dDescription DepthwisePlanesPlan::description() const {
  const PlanesBlocking& b = blocking_;
  std::int64_t tallest = 1;
  for (const AxisTile& tile : b.tiles.front()) tallest = std::max<std::int64_t>(tallest, tile.outputs);
  Conv2dDescription d;
  d.kernel = "depthwise_planes";
  d.target = target_->name;
  d.tile = text(tallest) + " rows x " + text(b.sections.front().lanes) +
           (b.transposes ? " channels" : " pixels of one channel");
  d.blocking = "unit " + text(b.unit_planes) + " channels x " + text(b.unit_rows) + " rows, " +
               text(problem_.n * b.plane_blocks * b.row_blocks) + " units";
  d.fusion = std::string(b.transposes ? "planes transposed"
                         : b.in_place ? "input in place"
                                      : "input staged") +
             ", " + describe_epilogue(problem_, true, !b.stores_rows);
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
