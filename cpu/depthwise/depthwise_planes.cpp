// The plan of the NCHW depthwise kernel, and the passes over a unit's planes. A unit's input rows and results stay in
// L1 if a plane fits.
#include "cpu/depthwise/depthwise_planes.h"

#include <algorithm>
#include <cmath>

#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/unit_description.h"

namespace gable::cpu {

DepthwisePlanesPlan::DepthwisePlanesPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("depthwise_planes", problem, target, threads)),
      target_(&target),
      threads_(threads),
      blocking_(depthwise_planes_blocking(problem, target, threads)),
      workspace_(static_cast<std::size_t>(threads * blocking_.workspace.thread_floats),
                 static_cast<std::size_t>(threads * blocking_.workspace.thread_floats)) {}

std::int64_t DepthwisePlanesPlan::folded_lanes() const {
  return problem_.nhwc ? blocking_.phases * blocking_.sections.front().lanes : 0;
}

std::size_t DepthwisePlanesPlan::packed_bytes() const {
  const std::int64_t vectors = problem_.nhwc ? folded_lanes() : problem_.k;
  return static_cast<std::size_t>(problem_.r * problem_.s * vectors) * sizeof(float);
}

Packing DepthwisePlanesPlan::packing() const { return packing_of(problem_, "depthwise_planes", {folded_lanes()}); }

void DepthwisePlanesPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  auto* out = static_cast<float*>(packed);
  if (p.nhwc) {
    const std::int64_t lanes = blocking_.sections.front().lanes;
    for (std::int64_t phase = 0; phase < blocking_.phases; ++phase) {
      for (std::int64_t kw = 0; kw < p.s; ++kw) {
        for (std::int64_t kh = 0; kh < p.r; ++kh) {
          for (std::int64_t lane = 0; lane < lanes; ++lane) {
            const std::int64_t k = (phase * lanes + lane) % p.k;
            *out++ = element_as_f32(weights, p.dtype, k * strides.out + kh * strides.row + kw * strides.column);
          }
        }
      }
    }
    return;
  }
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
        weights_(plan.workspace_.data() + thread * b_.workspace.thread_floats) {
    const WindowAxis axis = row_axis(p_);
    const std::int64_t last = axis.first(first_row_ + rows_ - 1) + (p_.r - 1) * p_.dilation_h + 1;
    first_input_ = std::clamp<std::int64_t>(axis.first(first_row_), 0, p_.h);
    input_rows_ = std::max<std::int64_t>(0, std::min(last, p_.h) - first_input_);
  }

  void compute() {
    if (b_.scales) return scale();
    if (b_.transposes) return compute_group();
    if (!b_.in_place) {
      for (std::int64_t k = first_; k < end_; ++k) {
        if (k == first_ || k % multiplier_ == 0) stage(k);
      }
    }
    if (b_.channels > 1) {
      compute_folded();
    } else {
      for (std::int64_t k = first_; k < end_; ++k) {
        for (std::size_t section = 0; section < b_.sections.size(); ++section) compute_plane(k, section);
      }
    }
    if (!b_.stores_rows) return;
    const PlaneKernels& kernels = *b_.sections.front().planes;
    for (std::int64_t k = first_; k < end_; ++k) {
      kernels.finish[static_cast<int>(p_.dtype)]({.results = plane(k) + b_.workspace.input_floats,
                                                  .pitch = b_.workspace.result_pitch,
                                                  .y = output(k),
                                                  .y_end = output(end_ - 1) + rows_ * p_.wo * element_,
                                                  .rows = rows_,
                                                  .width = p_.wo,
                                                  .tanh = p_.activation == Activation::tanh});
    }
  }

 private:
  float* plane(std::int64_t k) const {
    return weights_ + b_.workspace.weight_floats + (k - first_) * b_.workspace.plane_floats;
  }
  /// The staged input rows of an output channel. Output channels of the same input channel share them.
  float* staged(std::int64_t k) const { return plane(std::max(first_, k / multiplier_ * multiplier_)); }
  const char* input(std::int64_t k) const {
    return run_.x + ((image_ * p_.c + k / multiplier_) * p_.h + first_input_) * p_.w * element_;
  }
  char* output(std::int64_t k) const { return run_.y + ((image_ * p_.k + k) * p_.ho + first_row_) * p_.wo * element_; }

  void scale() const {
    // Outputs of the first input plane may begin in the unit before.
    for (std::int64_t k = first_; k < end_;) {
      const std::int64_t whole = k % multiplier_ == 0 ? end_ - k : std::min(end_ - k, multiplier_ - k % multiplier_);
      b_.sections.front().planes->scale[static_cast<int>(p_.dtype)](
          {.x = input(k),
           .repeats = multiplier_,
           .weights = run_.packed + k,
           .bias = run_.bias == nullptr ? nullptr : run_.bias + k,
           .y = output(k),
           .planes = whole,
           .pixels = p_.wo,
           .least = p_.activation == Activation::relu ? 0.0F : -INFINITY,
           .tanh = p_.activation == Activation::tanh});
      k += whole;
    }
  }

  /// As many planes as a vector has lanes, one column of pixels after the other.
  void compute_group() const {
    const RowSection& section = b_.sections.front();
    const PlaneKernels& kernels = *section.planes;
    const std::int64_t taps = p_.r * p_.s, lanes = section.lanes, count = end_ - first_;
    float* x = plane(first_);
    char* y = reinterpret_cast<char*>(x + b_.workspace.input_floats);
    const DType stored = p_.activation == Activation::tanh ? DType::f32 : p_.dtype;
    const auto stored_bytes = static_cast<std::int64_t>(size_of(stored));
    float* bias = weights_ + taps * lanes;
    kernels.transpose(run_.packed + first_ * taps, taps, weights_, lanes, count, taps);
    for (std::int64_t i = 0; i < count; ++i) bias[i] = run_.bias == nullptr ? 0.0F : run_.bias[first_ + i];
    kernels.to_pixels[static_cast<int>(p_.dtype)]({const_cast<char*>(input(first_)), x, count, p_.h * p_.w, false});
    DepthwiseTileCall call{};
    call.x.step = b_.rows.position_step * b_.workspace.pitch;
    call.weights.first = weights_;
    call.y.step = b_.rows.output_step * p_.wo * lanes;
    call.bias.first = bias;
    call.vectors.count = 1;
    call.y.least = p_.activation == Activation::relu ? 0.0F : -INFINITY;
    const WindowAxis columns = column_axis(p_);
    for (std::int64_t column = 0; column < p_.wo; ++column) {
      const TapRange inside = b_.columns[static_cast<std::size_t>(column)];
      call.taps.runs = b_.rows.runs.front().data() + inside.begin * b_.row_runs;
      call.taps.run_count = (inside.end - inside.begin) * b_.row_runs;
      for (const AxisTile& tile : b_.rows.tiles.front()) {
        call.tiles = tile.count;
        call.taps.positions = b_.rows.positions.data() + tile.positions_at;
        call.x.first = x + (tile.input * p_.w + columns.first(column)) * lanes;
        call.y.first = y + (tile.first * p_.wo + column) * lanes * stored_bytes;
        section.tiles->narrowing[static_cast<int>(stored)][b_.rows.stride - 1][tile.outputs - 1](call);
      }
    }
    kernels.from_pixels[static_cast<int>(p_.dtype)](
        {output(first_), y, count, p_.ho * p_.wo, p_.activation == Activation::tanh});
  }

  void stage(std::int64_t k) const {
    const PlaneKernels& kernels = *b_.sections.front().planes;
    const bool apart = b_.channels > 1 && p_.stride_w > 1;  // pixels change places, not elements
    const PlaneRows rows{.x = input(k),
                         .x_end = run_.x_end,
                         .rows = input_rows_,
                         .width = p_.w,
                         .strip = staged(k),
                         .pitch = b_.workspace.pitch,
                         .phase_elements = b_.workspace.phase_floats,
                         .pad_left = p_.pad_left * (apart ? 1 : b_.channels),
                         .stride = p_.stride_w};
    const auto& staging = b_.tile_type == p_.dtype ? kernels.staged : kernels.staged_as_f32;
    const auto [stage_rows, stage_pixels] = staging[static_cast<std::size_t>(p_.dtype)];
    if (apart) return stage_pixels(rows, b_.channels);
    stage_rows(rows);
  }

  std::int64_t tile_bytes() const { return static_cast<std::int64_t>(size_of(b_.tile_type)); }

  /// The call for a section of a plane's rows but its weights and bias.
  DepthwiseTileCall call_of(std::size_t index) const {
    const RowSection& section = b_.sections[index];
    DepthwiseTileCall call{};
    call.taps.runs = b_.rows.runs[index].data();
    call.taps.run_count = static_cast<std::int64_t>(b_.rows.runs[index].size());
    call.x.step = b_.rows.position_step * x_pitch();
    call.y.step = b_.rows.output_step * y_pitch();
    call.vectors.count = section.vectors;
    call.vectors.last = {section.last, section.last, 0};
    call.y.least = p_.activation == Activation::relu ? 0.0F : -INFINITY;
    return call;
  }
  std::int64_t x_pitch() const { return b_.in_place ? p_.w : b_.workspace.pitch; }
  std::int64_t y_pitch() const { return b_.stores_rows ? b_.workspace.result_pitch : p_.wo; }
  const char* first_input(std::int64_t k) const {
    return b_.in_place ? input(k) : reinterpret_cast<const char*>(staged(k));
  }
  char* first_output(std::int64_t k) const {
    return b_.stores_rows ? reinterpret_cast<char*>(plane(k) + b_.workspace.input_floats) : output(k);
  }

  /// Calls compute(tile, function) for the tiles of the unit's rows, with the addresses of the section in `call`.
  template <class Compute>
  void for_tiles(std::int64_t k, const RowSection& section, DepthwiseTileCall& call,
                 const Compute& compute_tile) const {
    const std::int64_t bytes = tile_bytes();
    const char* x = first_input(k) + section.first * bytes;
    char* y = first_output(k) + section.first * bytes;
    const std::int64_t x_row = x_pitch() * bytes, y_row = y_pitch() * bytes;
    const auto& functions = section.tiles->tiles[static_cast<int>(b_.tile_type)][b_.rows.stride - 1];
    for (const AxisTile& tile : b_.rows.tiles[static_cast<std::size_t>(block_)]) {
      call.tiles = tile.count;
      call.taps.positions = b_.rows.positions.data() + tile.positions_at;
      call.x.first = x + (tile.input - first_input_) * x_row;
      call.y.first = y + (tile.first - first_row_) * y_row;
      compute_tile(functions[tile.outputs - 1]);
    }
  }

  void compute_plane(std::int64_t k, std::size_t index) const {
    const RowSection& section = b_.sections[index];
    const std::int64_t taps = p_.r * p_.s;
    section.planes->spread(run_.packed + k * taps, taps, weights_);
    const float bias = run_.bias == nullptr ? 0.0F : run_.bias[k];
    section.planes->spread(&bias, 1, weights_ + taps * section.lanes);
    DepthwiseTileCall call = call_of(index);
    call.weights.first = weights_;
    call.bias.first = weights_ + taps * section.lanes;
    for_tiles(k, section, call, [&](DepthwiseTileFunction tiles) { tiles(call); });
  }

  /// The one plane of NHWC images. Its weights are packed as vectors.
  void compute_folded() const {
    const RowSection& section = b_.sections.front();
    repeat_bias(section.lanes);
    DepthwiseTileCall call = call_of(0);
    const std::int64_t lanes = b_.phases > 1 ? section.lanes : 0;
    call.weights = {run_.packed, p_.r * p_.s * lanes};
    call.bias = {weights_, lanes};
    for_tiles(0, section, call, [&](DepthwiseTileFunction tiles) {
      if (b_.phases == 1) return tiles(call);
      compute_phases(call, section, tiles);
    });
  }

  /// The vectors of a row's tiles, as many at a time as have weights of their own. The last vector begins as many lanes
  /// before the row's end as the last one of the phases before a whole period's end, so its weights are those.
  void compute_phases(DepthwiseTileCall call, const RowSection& section, DepthwiseTileFunction tiles) const {
    const std::int64_t bytes = tile_bytes();
    const std::int64_t whole = (section.last + section.lanes) / section.lanes;  // vectors that do not overlap
    const auto* x = static_cast<const char*>(call.x.first);
    auto* y = static_cast<char*>(call.y.first);
    for (std::int64_t first = 0; first < whole; first += b_.phases) {
      call.vectors.count = std::min(b_.phases, whole - first);
      const std::int64_t last = (call.vectors.count - 1) * section.lanes;
      call.vectors.last = {last, last, last};
      call.x.first = x + first * section.lanes * bytes;
      call.y.first = y + first * section.lanes * bytes;
      tiles(call);
    }
    if (whole == section.vectors) return;
    call.vectors.count = 1;
    call.vectors.last = {0, 0, 0};
    call.x.first = x + section.last * bytes;
    call.y.first = y + section.last * bytes;
    call.weights.first += (b_.phases - 1) * call.weights.step;
    call.bias.first += (b_.phases - 1) * section.lanes;
    tiles(call);
  }

  /// The bias of each lane of the vectors whose channels differ.
  void repeat_bias(std::int64_t lanes) const {
    std::int64_t channel = 0;
    for (std::int64_t i = 0; i < b_.phases * lanes; ++i) {
      weights_[i] = run_.bias == nullptr ? 0.0F : run_.bias[channel];
      if (++channel == b_.channels) channel = 0;
    }
  }

  const PlanesBlocking& b_;
  const Conv2dProblem& p_;
  const Run& run_;
  std::int64_t element_, multiplier_, image_, first_, end_, block_, first_row_, rows_;
  std::int64_t first_input_ = 0, input_rows_ = 0;
  float* weights_;  // of the plane that is computed, as vectors; of folded channels the bias alone
};

void DepthwisePlanesPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Conv2dProblem& p = problem_;
  if (blocking_.scales) {
    note_path(Path::depthwise_planes_scaled, *target_);
  } else if (blocking_.transposes) {
    note_path(Path::depthwise_planes_transposed, *target_);
  } else {
    if (blocking_.channels > 1) note_path(Path::depthwise_planes_folded, *target_);
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
  if (!b.scales) {
    for (const AxisTile& tile : b.rows.tiles.front()) tallest = std::max<std::int64_t>(tallest, tile.outputs);
  }
  Conv2dDescription d;
  d.kernel = "depthwise_planes";
  d.target = target_->name;
  d.tile = b.scales ? text(b.sections.front().lanes) + " pixels of one channel"
                    : text(tallest) + " rows x " + text(b.sections.front().lanes) +
                          (b.transposes     ? " channels"
                           : b.channels > 1 ? " channels of neighbouring pixels"
                                            : " pixels of one channel");
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
