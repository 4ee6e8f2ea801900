// Which problems the NHWC depthwise kernel takes, packing, and the loops over a unit's pixel blocks and rows.
#include "cpu/depthwise/depthwise.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/unit_description.h"

namespace gable::cpu {
namespace {

/// Vectors of a cache line: narrower non-temporal stores would write a line to memory in parts.
constexpr std::int64_t kLineLanes = 16;

/// Floats of the plan's own bias; 0 if the caller's is used. The plan needs its own if the problem has none or has
/// fewer channels than lanes.
std::size_t bias_floats(const Conv2dProblem& p, std::int64_t lanes) {
  return p.bias && p.k >= lanes ? 0 : line_floats(std::max(p.k, lanes));
}

}  // namespace

std::string depthwise_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (!has_single_channel_groups(p)) {
    return text(p.groups) + (p.groups == 1 ? " group of " : " groups of ") + text(p.group_c()) +
           " input channels; it takes several groups of one each";
  }
  if (!p.nhwc) return "layout nchw: its lanes are channels, which must be neighbours";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.r * p.s > kMaxTablePieces) return text(p.r * p.s) + " filter taps; its table holds " + text(kMaxTablePieces);
  if (const std::int64_t pieces = depthwise_table_pieces(p, target); pieces > kMaxTablePieces)
    return text(pieces) + " pieces of a row or of the channels; its table holds " + text(kMaxTablePieces);
  return "";
}

DepthwisePlan::DepthwisePlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("depthwise", problem, target, threads)),
      target_(&target),
      threads_(threads),
      blocking_(choose_depthwise_blocking(problem, target, threads)),
      columns_(column_axis(blocking_.problem)),
      workspace_(static_cast<std::size_t>(threads * blocking_.thread_floats())),
      bias_(bias_floats(problem, blocking_.sections.front().lanes),
            bias_floats(problem, blocking_.sections.front().lanes)),
      runs_(static_cast<std::size_t>(kRunsGap + threads * runs_apart())) {}

std::int64_t DepthwisePlan::runs_apart() const { return problem_.r * columns_.runs() + kRunsGap; }

std::int64_t DepthwisePlan::packed_lanes() const {
  const ChannelSection& last = blocking_.sections.back();
  return last.packed_lanes_before + last.vectors() * last.lanes;
}
std::size_t DepthwisePlan::packed_bytes() const {
  return static_cast<std::size_t>(packed_lanes() * problem_.r * problem_.s) * sizeof(float);
}
std::size_t DepthwisePlan::workspace_bytes() const {
  return (workspace_.size() + bias_.size()) * sizeof(float) + runs_.size() * sizeof(TapRun);
}

Packing DepthwisePlan::packing() const {
  const ChannelSection& first = blocking_.sections.front();
  return packing_of(problem_, "depthwise", {first.lanes, blocking_.sections.back().lanes, first.paired ? 1 : 0});
}

void DepthwisePlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  auto* out = static_cast<float*>(packed);
  for (const ChannelSection& section : blocking_.sections) {
    for (std::int64_t vector = 0; vector < section.vectors(); ++vector) {
      for (std::int64_t kh = 0; kh < p.r; ++kh) {
        for (std::int64_t kw = 0; kw < p.s; ++kw) {
          for (std::int64_t lane = 0; lane < section.lanes; ++lane) {
            const std::int64_t channel = section.channel(vector, lane);
            const std::int64_t source =
                (section.first + channel) * strides.out + kh * strides.row + kw * strides.column;
            *out++ = channel < section.channels ? element_as_f32(weights, p.dtype, source) : 0.0F;
          }
        }
      }
    }
  }
}

/// Whether several threads may wait for DRAM's writes if they store past the caches: as many pixels are written as
/// read, with few products each.
bool stores_bound(const Conv2dProblem& p, int threads) {
  constexpr std::int64_t kHiddenProducts = 6;  // of an output, for each thread
  return threads > 1 && p.stride_h == 1 && p.stride_w == 1 && p.r * p.s <= kHiddenProducts * threads;
}

// If y does not stay in L2, non-temporal stores save the reads that ordinary stores make of the lines they fill. Where
// they would bound the time, y stays in the last level if that has room.
bool DepthwisePlan::non_temporal() const {
  const std::int64_t bytes = (problem_.x_elements() + problem_.y_elements()) * std::int64_t{sizeof(float)};
  const std::int64_t cached = stores_bound(problem_, threads_) ? last_level_bytes() * 5 / 8 : 4 * l2_bytes();
  return problem_.dtype == DType::f32 && !blocking_.stores_rows && blocking_.sections.front().lanes == kLineLanes &&
         problem_.k % kLineLanes == 0 && bytes > std::max(cached, 4 * l2_bytes());
}

/// A run's pointers.
struct DepthwisePlan::Run {
  const char* x;
  const float* packed;
  const float* bias;
  char* y;
  bool non_temporal;
};

/// One block of channels of a unit of work.
class DepthwisePlan::UnitBlock {
 public:
  /// Blocks are counted over all units.
  UnitBlock(DepthwisePlan& plan, const Run& run, std::int64_t index, int thread)
      : plan_(plan),
        run_(run),
        b_(plan.blocking_),
        p_(plan.blocking_.problem),
        block_(b_.channel_blocks[static_cast<std::size_t>(index) % b_.channel_blocks.size()]),
        lanes_(b_.sections[block_.section].lanes),
        element_(static_cast<std::int64_t>(size_of(p_.dtype))),
        ring_(plan.workspace_.data() + thread * b_.thread_floats()),
        results_(ring_ + b_.ring_rows * b_.row_floats),
        runs_(plan.runs_of(thread)) {
    const std::int64_t place = index / static_cast<std::int64_t>(b_.channel_blocks.size());
    const std::int64_t multiplier = p_.k / p_.c;
    first_row_ = place % b_.row_blocks * b_.unit_rows;
    const std::int64_t image = place / b_.row_blocks;
    x_ = run.x + (image * p_.h * p_.w * p_.c + block_.first / multiplier) * element_;
    y_ = run.y + (image * p_.ho * p_.wo * p_.k + block_.first) * element_;
    const std::int64_t packed_lane = b_.sections[block_.section].packed_lanes_before + block_.first_vector * lanes_;
    call_.taps.runs = runs_;
    call_.weights = {.first = run.packed + packed_lane * p_.r * p_.s, .step = lanes_ * p_.r * p_.s};
    call_.bias = {.first = run.bias + block_.first, .step = lanes_};
    call_.y.least = p_.activation == Activation::relu ? 0.0F : -INFINITY;
    call_.y.non_temporal = run.non_temporal;
    call_.vectors.count = block_.vectors.vectors;
    call_.vectors.paired = b_.sections[block_.section].paired;
    last_image_ = image + 1 == p_.n;
    place_rows(b_.stages_input || b_.copies_input, b_.stores_rows);
  }

  void compute() {
    const std::int64_t end = std::min(first_row_ + b_.unit_rows, p_.ho);
    for (const PixelBlock& pixels : b_.pixel_blocks) {
      staged_ = 0;
      first_copied_ = kNone;
      for (std::int64_t row = first_row_; row < end;) {
        if (takes_row_tiles(row, end)) {
          compute_row_tiles(pixels, row);
          row += kRowTileRows;
        } else {
          compute_row(pixels, row++);
        }
      }
    }
    if (run_.non_temporal) hwy::FlushStream();
  }

 private:
  /// Whether rows of input are read from the workspace and rows of results are written to it.
  void place_rows(bool staged, bool stored) {
    staged_rows_ = staged;
    stored_rows_ = stored;
    const std::int64_t in_rows = (block_.vectors.vectors - 1) * lanes_;  // offset of the last vector in f32 rows
    x_pitch_ = b_.copies_input ? b_.copied_pixel : staged ? block_.vectors.vectors * lanes_ : b_.x_steps.pixel;
    y_pitch_ = stored ? block_.vectors.vectors * lanes_ : b_.y_steps.pixel;
    call_.vectors.last = {.x = staged ? in_rows : block_.vectors.last,
                          .y = stored ? in_rows : block_.vectors.last,
                          .bias = block_.vectors.last};
    call_.x.step = plan_.columns_.position_step() * x_pitch_;
    call_.y.step = plan_.columns_.output_step() * y_pitch_;
  }

  /// Whether vectors may reach beyond the rows that this one reads: what they read there belongs to the tensor.
  bool may_reach(std::int64_t row, const WindowAxis& rows, const TapRange& taps) const {
    const bool ends_tensor =
        last_image_ && taps.begin < taps.end && rows.first(row) + (taps.end - 1) * p_.dilation_h + 1 == p_.h;
    return b_.reaches && !ends_tensor;
  }
  /// Whether vectors must not reach beyond this row of output: what they would write there is another unit's, or
  /// nobody's.
  bool ends_unit(std::int64_t row) const { return row + 1 == std::min(first_row_ + b_.unit_rows, p_.ho); }

  void compute_row(const PixelBlock& pixels, std::int64_t row) {
    const WindowAxis rows = row_axis(p_);
    const TapRange taps = rows.inside(row);
    const bool reaches = may_reach(row, rows, taps);
    if (b_.reaches && staged_rows_ == reaches) place_rows(!reaches, b_.stores_rows && !reaches);
    if (staged_rows_ && taps.begin < taps.end) {
      // Not from the first tap inside the image: with dilation, later rows of output may read rows before it.
      const std::int64_t first = std::max<std::int64_t>(0, rows.first(row));
      const std::int64_t end_row = rows.first(row) + (taps.end - 1) * p_.dilation_h + 1;
      stage(pixels, first, end_row);
    }
    list_runs(rows, row, taps);
    const DType type = reaches ? p_.dtype : b_.tile_type;
    const DepthwiseTileFunction* functions =
        block_.tiles->tiles[static_cast<int>(type)][plan_.columns_.tile_stride() - 1];
    const auto bytes = static_cast<std::int64_t>(size_of(type));
    const char* x = staged_rows_ ? reinterpret_cast<const char*>(ring_) : x_;
    char* const y_row = y_ + row * b_.y_steps.row * element_;
    // The last row is computed in the workspace as it lies in y.
    const bool copied = reaches && ends_unit(row);
    char* y = stored_rows_ || copied ? reinterpret_cast<char*>(results_) : y_row;
    const std::int64_t first_pixel = stored_rows_ ? pixels.first_pixel : 0;
    const std::int64_t first_column = staged_rows_ ? pixels.first_column : 0;
    for (std::size_t i = pixels.first_tile; i < pixels.end_tile; ++i) {
      const AxisTile& tile = b_.tiles[i];
      call_.taps.positions = b_.positions.data() + tile.positions_at;
      call_.x.first = x + (tile.input - first_column) * x_pitch_ * bytes;
      call_.y.first = y + (tile.first - first_pixel) * y_pitch_ * bytes;
      call_.tiles = tile.count;
      functions[tile.outputs - 1](call_);
    }
    if (stored_rows_) narrow(pixels, row);
    if (copied) std::copy_n(y, p_.wo * p_.k * bytes, y_row);
  }

  /// Whether a row tile can begin at this row: enough rows follow, and none of them reads padding rows.
  bool takes_row_tiles(std::int64_t row, std::int64_t end) const {
    if (b_.row_tile_outputs == 0 || row + kRowTileRows > end) return false;
    const WindowAxis rows = row_axis(p_);
    // Vectors that reach into the next pixels must not read behind the tensor.
    const std::int64_t readable = b_.reaches && last_image_ ? p_.h - 1 : p_.h;
    return rows.first(row) >= 0 && rows.first(row + kRowTileRows - 1) + kRowTileTaps <= readable;
  }

  void compute_row_tiles(const PixelBlock& pixels, std::int64_t row) {
    if (staged_rows_ && !b_.copies_input) place_rows(false, false);
    call_.y.part = b_.reaches ? static_cast<int>(p_.k) : 0;
    const DepthwiseTileFunction* functions =
        block_.tiles->row_tiles[static_cast<int>(p_.dtype)][plan_.columns_.tile_stride() - 1];
    const std::int64_t first = row_axis(p_).first(row);
    if (staged_rows_) stage(pixels, first, first + (kRowTileRows - 1) * p_.stride_h + kRowTileTaps);
    const char* x =
        staged_rows_ ? reinterpret_cast<const char*>(workspace_row(first)) : x_ + first * p_.w * p_.c * element_;
    const std::int64_t first_column = staged_rows_ ? pixels.first_column : 0;
    char* y = y_ + row * p_.wo * p_.k * element_;
    call_.x.row = staged_rows_ ? elements_of(b_.row_floats) : p_.w * p_.c;
    call_.y.row = p_.wo * p_.k;
    call_.x.prefetch_bytes = b_.prefetches && !staged_rows_ ? kRowTileRows * p_.stride_h * p_.w * p_.c * element_ : 0;
    for (std::size_t i = pixels.first_tile; i < pixels.end_tile; ++i) {
      const AxisTile& tile = b_.tiles[i];
      call_.taps.positions = b_.positions.data() + tile.positions_at;
      call_.x.first = x + (tile.input - first_column) * x_pitch_ * element_;
      call_.y.first = y + tile.first * y_pitch_ * element_;
      call_.tiles = tile.count;
      functions[tile.outputs - 1](call_);
    }
  }

  void list_runs(const WindowAxis& rows, std::int64_t row, const TapRange& taps) {
    TapRun* next = runs_;
    for (std::int64_t kh = taps.begin; kh < taps.end; ++kh) {
      const std::int64_t source = rows.first(row) + kh * p_.dilation_h;
      const std::int64_t x = staged_rows_ ? elements_of(workspace_row(source) - ring_) : source * b_.x_steps.row;
      for (std::int64_t run = 0; run < plan_.columns_.runs(); ++run) {
        const std::int64_t tap = plan_.columns_.run_tap(run);
        *next++ = {x + tap * p_.dilation_w * x_pitch_, (kh * p_.s + tap) * lanes_,
                   static_cast<std::int32_t>(plan_.columns_.run_taps(run)), static_cast<std::int32_t>(run)};
      }
    }
    call_.taps.run_count = next - runs_;
    const bool prefetches = b_.prefetches && !staged_rows_ && call_.taps.run_count > 0;
    call_.x.prefetch_bytes = prefetches ? p_.stride_h * b_.x_steps.row * element_ : 0;
  }

  /// Elements of what tiles read.
  std::int64_t elements_of(std::int64_t floats) const {
    return floats * static_cast<std::int64_t>(sizeof(float) / size_of(b_.tile_type));
  }
  float* workspace_row(std::int64_t source) const {
    return ring_ + (b_.copies_input ? source - first_copied_ : source % b_.ring_rows) * b_.row_floats;
  }

  /// Widens or copies the input rows [first, end), unless they are in the workspace already.
  void stage(const PixelBlock& pixels, std::int64_t first, std::int64_t end) {
    if (b_.copies_input && (first_copied_ == kNone || end > first_copied_ + b_.ring_rows)) {
      first_copied_ = staged_ = first;  // the rows of the last window are copied again
    }
    for (std::int64_t source = std::max(first, staged_); source < end; ++source) {
      const char* x = x_ + (source * p_.w + pixels.first_column) * p_.c * element_;
      if (b_.copies_input) {
        copy(pixels, x, workspace_row(source));
      } else {
        widen(pixels, x, workspace_row(source));
      }
    }
    staged_ = std::max(staged_, end);
  }

  void copy(const PixelBlock& pixels, const char* x, float* row) const {
    block_.rows->copy({.x = x,
                       .x_step = p_.c * element_,
                       .row = reinterpret_cast<char*>(row),
                       .row_step = b_.copied_pixel * element_,
                       .pixels = pixels.columns,
                       .bytes = block_.vectors.channels * element_});
  }

  void widen(const PixelBlock& pixels, const char* x, float* row) const {
    const std::int64_t multiplier = p_.k / p_.c;
    const auto& widen = multiplier == 1 ? block_.rows->widen : block_.rows->widen_multiplied;
    widen[static_cast<int>(p_.dtype)]({.x = x,
                                       .x_step = p_.c,
                                       .row = row,
                                       .row_step = x_pitch_,
                                       .pixels = pixels.columns,
                                       .lanes = block_.vectors,
                                       .multiplier = multiplier,
                                       .first_of_input = block_.first % multiplier});
  }

  void narrow(const PixelBlock& pixels, std::int64_t row) const {
    block_.rows->narrow[static_cast<int>(p_.dtype)]({.row = results_,
                                                     .row_step = y_pitch_,
                                                     .y = y_ + (row * p_.wo + pixels.first_pixel) * p_.k * element_,
                                                     .y_step = p_.k,
                                                     .pixels = pixels.pixels,
                                                     .lanes = block_.vectors,
                                                     .tanh = p_.activation == Activation::tanh});
  }

  static constexpr std::int64_t kNone = -1;

  DepthwisePlan& plan_;
  const Run& run_;
  const DepthwiseBlocking& b_;
  const Conv2dProblem& p_;
  const ChannelBlock& block_;
  std::int64_t lanes_, element_;
  float* ring_;
  float* results_;
  TapRun* runs_;
  std::int64_t first_row_ = 0, x_pitch_ = 0, y_pitch_ = 0;
  std::int64_t staged_ = 0;            // the input row behind the last one in the workspace
  std::int64_t first_copied_ = kNone;  // the one at its beginning, of copied rows
  bool staged_rows_ = false, stored_rows_ = false, last_image_ = false;
  const char* x_ = nullptr;
  char* y_ = nullptr;
  DepthwiseTileCall call_{};
};

void DepthwisePlan::run(const void* x, const void* packed, const float* bias, void* y) {
  note_path(blocking_.stages_input   ? Path::depthwise_widened
            : blocking_.copies_input ? Path::depthwise_copied
                                     : Path::depthwise_in_place,
            *target_);
  if (blocking_.row_tile_outputs > 0) note_path(Path::depthwise_row_tiles, *target_);
  if (blocking_.x_steps.row < blocking_.x_steps.pixel) note_path(Path::depthwise_columns, *target_);
  if (blocking_.reaches) note_path(Path::depthwise_reaching, *target_);
  if (problem_.k != problem_.c) note_path(Path::depthwise_multiplied, *target_);
  if (blocking_.sections.front().paired) note_path(Path::depthwise_pairs, *target_);
  const bool in_place = problem_.bias && bias_.size() == 0;
  if (problem_.bias && !in_place) std::copy(bias, bias + problem_.k, bias_.data());
  const Run call{static_cast<const char*>(x), static_cast<const float*>(packed), in_place ? bias : bias_.data(),
                 static_cast<char*>(y), non_temporal() && reinterpret_cast<std::uintptr_t>(y) % 64 == 0};
  if (call.non_temporal) note_path(Path::depthwise_non_temporal, *target_);
  const std::int64_t blocks = blocking_.unit_blocks;
  parallel_units(threads_, blocking_.units(), run_times_, [&](std::int64_t unit, int thread) {
    for (std::int64_t i = 0; i < blocks; ++i) UnitBlock(*this, call, unit * blocks + i, thread).compute();
  });
}

Conv2dDescription DepthwisePlan::description() const {
  const DepthwiseBlocking& b = blocking_;
  std::int64_t widest = 1;
  for (const AxisTile& tile : b.tiles) widest = std::max<std::int64_t>(widest, tile.outputs);
  Conv2dDescription d;
  d.kernel = "depthwise";
  d.target = target_->name;
  d.tile = (b.row_tile_outputs > 0 ? text(kRowTileRows) + "x" : "") + text(widest) + " pixels x " +
           text(b.sections.front().lanes) + " channels";
  const std::int64_t channels = b.unit_blocks > 1 ? problem_.k : b.channel_blocks.front().vectors.channels;
  d.blocking = "unit " + text(b.unit_rows) + " rows x " + text(channels) + " channels in blocks of " +
               text(b.pixel_blocks.front().pixels) + " pixels, " + text(b.units()) + " units";
  const char* const input = b.stages_input ? "input widened in L1" : b.copies_input ? "input copied" : "input in place";
  d.fusion = std::string(input) + ", " + describe_epilogue(problem_, true, !b.stores_rows) +
             (non_temporal() ? ", non-temporal stores" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
