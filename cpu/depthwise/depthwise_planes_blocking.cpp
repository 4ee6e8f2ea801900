// See depthwise_planes_blocking.h.
#include "cpu/depthwise/depthwise_planes_blocking.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cpu/common/aligned.h"
#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/description.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kUnitFloats = 10 << 10;
/// A group's pixels stay in L2, and mostly in L1.
constexpr std::int64_t kMaxTransposedPixels = 1024;
/// The weights of an NHWC image's vectors stay in L1.
constexpr std::int64_t kMaxPhaseBytes = 16 << 10;

}  // namespace

bool transposed_planes_exceed_l1(const Conv2dProblem& p, std::int64_t lanes) {
  return 2 * p.h * p.w * lanes * static_cast<std::int64_t>(sizeof(float)) > l1_bytes();
}

namespace {

/// Whether rows of NHWC images are taken as rows of a plane: channels that do not fill a vector, and rows that do. With
/// more channels `depthwise` leaves fewer lanes unused.
bool folds_channels(const Conv2dProblem& p, std::int64_t lanes) {
  const std::int64_t weights = vector_phases(p.c, lanes) * lanes * p.r * p.s * static_cast<std::int64_t>(sizeof(float));
  return p.k == p.c && p.c < lanes && !is_pointwise(p) && p.wo * p.c >= lanes && weights <= kMaxPhaseBytes;
}

/// All channels of all pixels of a row as the row of a plane. Stride, dilation and padding still count pixels.
Conv2dProblem with_folded_rows(Conv2dProblem p) {
  p.w *= p.c;
  p.wo *= p.k;
  p.c = p.k = p.groups = 1;
  return p;
}

class PlanesCutter {
 public:
  PlanesCutter(const Conv2dProblem& problem, const Target& target, int threads)
      : p_(problem.nhwc ? with_folded_rows(problem) : with_pixels_in_a_row(problem)), threads_(threads) {
    b_.problem = p_;
    b_.channels = problem.nhwc ? problem.c : 1;
    b_.phases = 1;
    if (problem.nhwc) {
      add_section(target, 0, p_.wo);
      b_.phases = vector_phases(problem.c, b_.sections.front().lanes);
      b_.stores_rows = p_.activation == Activation::tanh;
      choose_input(problem);
      return;
    }
    b_.scales = b_.in_place = is_pointwise(p_);
    if (b_.scales) {
      add_section(target, 0, p_.wo);
      return;
    }
    b_.transposes = lanes_are_channels(depthwise_tiles(target).lanes);
    if (b_.transposes) {
      const Target* half = half_width_target(target);
      add_section(half != nullptr && p_.k <= depthwise_tiles(*half).lanes ? *half : target, 0, 1);
      return;
    }
    choose_sections(target);
    const bool whole = b_.sections.front().lanes <= p_.wo;
    b_.stores_rows = !whole || p_.activation == Activation::tanh;
    choose_input(p_);
    if (!whole) b_.in_place = false;
  }

  PlanesBlocking run() {
    cut();
    if (threads_ > 1) b_.workspace.thread_floats += kApartFloats;
    return b_;
  }

  /// The size of the table, counted without making it.
  std::int64_t table_pieces() {
    if (b_.scales) return 1;
    const AxisCut rows(row_axis(p_));
    if (b_.transposes) return std::max(p_.ho, rows.most_positions(p_.ho, kMaxTileOutputs));
    choose_rows();
    return b_.row_blocks * rows.most_positions(b_.unit_rows, kMaxTileOutputs);
  }

 private:
  /// Whether lanes are channels. Rows of two vectors leave few lanes unused; beside AMX they are faster than transposed
  /// planes that exceed L1 with their pixels, in f32.
  bool lanes_are_channels(std::int64_t lanes) const {
    if (p_.k != p_.c || p_.wo >= 2 * lanes || p_.h * p_.w > kMaxTransposedPixels) return false;
    const bool long_rows = p_.dtype == DType::f32 && p_.stride_w == 1 && 2 * p_.wo > 3 * lanes;
    return !(long_rows && core_kind(lanes) == CoreKind::amx && transposed_planes_exceed_l1(p_, lanes));
  }

  void cut() {
    if (b_.scales) return cut_scaled();
    if (b_.transposes) return cut_transposed();
    choose_rows();
    const std::int64_t fair = fair_planes();
    const std::int64_t fitting =
        std::max<std::int64_t>(1, kUnitFloats / std::max<std::int64_t>(1, b_.workspace.plane_floats));
    b_.unit_planes = b_.row_blocks > 1 ? 1 : std::min({p_.k, fair, fitting});
    b_.plane_blocks = ceil_div(p_.k, b_.unit_planes);
    // Folded channels have their weights packed as vectors, and a bias for each phase.
    const std::int64_t spread = b_.channels > 1 ? b_.phases : p_.r * p_.s + 1;
    b_.workspace.weight_floats = static_cast<std::int64_t>(line_floats(spread * b_.sections.front().lanes));
    b_.workspace.thread_floats = b_.workspace.weight_floats + b_.unit_planes * b_.workspace.plane_floats;
    cut_rows();
  }

  /// Tries ever more blocks of rows, skipping numbers that do not make a block smaller.
  void choose_rows() {
    for (std::int64_t rows = p_.ho;; rows = ceil_div(p_.ho, ceil_div(p_.ho, rows - 1))) {
      b_.unit_rows = std::min(p_.ho, round_up(rows, tile_rows()));
      lay_out();
      if (!too_large() || b_.unit_rows <= tile_rows()) break;
    }
    b_.row_blocks = ceil_div(p_.ho, b_.unit_rows);
  }

  /// Planes of a unit, so that all threads get some.
  std::int64_t fair_planes() const {
    return threads_ == 1 ? p_.k : std::max<std::int64_t>(1, p_.n * p_.k / units_wanted(threads_));
  }

  void cut_scaled() {
    b_.unit_planes = std::min(p_.k, fair_planes());
    b_.plane_blocks = ceil_div(p_.k, b_.unit_planes);
    b_.unit_rows = b_.row_blocks = 1;
  }

  void cut_transposed() {
    const std::int64_t lanes = b_.sections.front().lanes;
    b_.stores_rows = true;
    b_.unit_planes = lanes;
    b_.plane_blocks = ceil_div(p_.k, lanes);
    b_.unit_rows = p_.ho;
    b_.row_blocks = 1;
    b_.workspace.pitch = p_.w * lanes;
    const std::int64_t results = p_.ho * p_.wo * lanes;
    b_.workspace.input_floats = static_cast<std::int64_t>(line_floats(p_.h * b_.workspace.pitch));
    b_.workspace.plane_floats = b_.workspace.input_floats + static_cast<std::int64_t>(line_floats(results));
    b_.workspace.weight_floats = static_cast<std::int64_t>(line_floats((p_.r * p_.s + 1) * lanes));
    b_.workspace.thread_floats = b_.workspace.weight_floats + b_.workspace.plane_floats;
    const WindowAxis columns = column_axis(p_);
    for (std::int64_t i = 0; i < p_.wo; ++i) b_.columns.push_back(columns.inside(i));
    cut_rows();
  }

  void cut_rows() {
    const AxisCut rows(row_axis(p_));
    b_.rows.position_step = rows.position_step();
    b_.rows.output_step = rows.output_step();
    b_.rows.stride = rows.tile_stride();
    b_.row_runs = rows.runs();
    for (std::int64_t i = 0; i < b_.row_blocks; ++i) {
      const std::int64_t first = i * b_.unit_rows;
      b_.rows.tiles.push_back(
          rows.tiles(first, std::min(first + b_.unit_rows, p_.ho), kMaxTileOutputs, b_.rows.positions));
    }
    for (const RowSection& section : b_.sections) list_runs(section, rows);
  }

  /// Tiles read the image itself where no column of the window lies in the padding, and they read its type.
  void choose_input(const Conv2dProblem& problem) {
    b_.tile_type = b_.stores_rows ? DType::f32 : p_.dtype;
    b_.in_place = p_.dtype == b_.tile_type && p_.stride_w == 1 && !column_axis(problem).padded();
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
    return too_few || b_.workspace.plane_floats > kUnitFloats;
  }

  /// Sizes of a plane's part for b_.unit_rows rows.
  void lay_out() {
    const std::int64_t lanes = b_.sections.front().lanes;
    const std::int64_t columns = std::max(p_.wo, lanes);
    const std::int64_t reach = (p_.s - 1) * p_.dilation_w / p_.stride_w * b_.channels;
    // Outputs and the furthest tap, or the image with a vector past its end.
    const std::int64_t pixels = p_.w / b_.channels;
    const std::int64_t width = ceil_div(p_.pad_left + pixels, p_.stride_w) * b_.channels + lanes;
    b_.workspace.pitch = std::max(columns + reach, width);
    const std::int64_t rows = std::min(p_.h, (b_.unit_rows - 1) * p_.stride_h + (p_.r - 1) * p_.dilation_h + 1);
    b_.workspace.phase_floats = static_cast<std::int64_t>(line_floats(rows * b_.workspace.pitch + lanes));
    const std::int64_t elements = b_.in_place ? 0 : p_.stride_w * b_.workspace.phase_floats;
    b_.workspace.input_floats =
        static_cast<std::int64_t>(line_floats(b_.tile_type == DType::f32 ? elements : elements / 2));
    b_.workspace.result_pitch = round_up(columns, lanes);
    const std::int64_t results = b_.stores_rows ? b_.unit_rows * b_.workspace.result_pitch : 0;
    b_.workspace.plane_floats = b_.workspace.input_floats + static_cast<std::int64_t>(line_floats(results));
  }

  /// Taps of a kernel column are neighbours along the tile.
  void list_runs(const RowSection& section, const AxisCut& rows) {
    std::vector<TapRun> runs;
    const std::int64_t pitch = b_.in_place ? p_.w : b_.workspace.pitch;
    for (std::int64_t kw = 0; kw < p_.s; ++kw) {
      const std::int64_t column = kw * p_.dilation_w;
      const std::int64_t at =
          b_.transposes ? column * section.lanes
                        : column % p_.stride_w * b_.workspace.phase_floats + column / p_.stride_w * b_.channels;
      for (std::int64_t run = 0; run < rows.runs(); ++run) {
        const std::int64_t tap = rows.run_tap(run);
        runs.push_back({at + tap * p_.dilation_h * pitch, (kw * p_.r + tap) * section.lanes,
                        static_cast<std::int32_t>(rows.run_taps(run)), static_cast<std::int32_t>(run)});
      }
    }
    b_.rows.runs.push_back(std::move(runs));
  }

  Conv2dProblem p_;
  int threads_;
  PlanesBlocking b_{};
};

}  // namespace

std::int64_t vector_phases(std::int64_t channels, std::int64_t lanes) { return channels / std::gcd(channels, lanes); }

std::string depthwise_planes_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (!has_single_channel_groups(p)) {
    return text(p.groups) + (p.groups == 1 ? " group of " : " groups of ") + text(p.group_c()) +
           " input channels; it takes several groups of one each";
  }
  if (p.nhwc && !folds_channels(p, depthwise_tiles(target).lanes)) {
    return "layout nhwc: its lanes are pixels, which must be neighbours, or pixels of few channels";
  }
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.r * p.s > kMaxTablePieces) return text(p.r * p.s) + " filter taps; its table holds " + text(kMaxTablePieces);
  if (const std::int64_t pieces = PlanesCutter(p, target, 1).table_pieces(); pieces > kMaxTablePieces)
    return text(pieces) + " pieces of a column; its table holds " + text(kMaxTablePieces);
  return "";
}

PlanesBlocking depthwise_planes_blocking(const Conv2dProblem& problem, const Target& target, int threads) {
  return PlanesCutter(problem, target, threads).run();
}

}  // namespace gable::cpu
