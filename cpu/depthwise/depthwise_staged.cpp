// Packing, description, and the loop nest: units over threads; in a unit panel > row > register tile (see
// depthwise_staged_blocking.h).
#include "cpu/depthwise/depthwise_staged.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/unit_description.h"

namespace gable::cpu {
namespace {

struct StagedRun {
  const Target& target;
  const DepthwiseStagedKernels& kernels;
  const DepthwiseStagedBlocking& blocking;
  const void* x;
  const float* packed;
  const float* bias;  // or null
  void* y;
  float* workspace;
  bool non_temporal;  // stores of y
};

/// One unit of work.
class Unit {
 public:
  Unit(const StagedRun& run, std::int64_t index, int thread)
      : run_(run),
        b_(run.blocking),
        p_(run.blocking.problem),
        place_(b_.units.at(index)),
        window_(unit_window(p_, b_.units, place_)),
        lanes_(lanes_of(b_, place_)),
        workspace_(run.workspace + static_cast<std::size_t>(thread) * b_.workspace.floats),
        input_(p_, window_, b_.axes, pixels_in_place(b_, window_, lanes_)),
        output_(output_place()) {}

  void compute() {
    note_input_paths();
    const float* bias = bias_in_vectors(run_.bias, lanes_, workspace_ + b_.workspace.bias);
    stage();
    for (std::int64_t lane = 0; lane < lanes_.padded; lane += b_.panel_lanes) compute_panel(lane, bias);
    if (!b_.tile_stores) {
      store_results({p_, strip_kernels(run_.target), window_, output_, p_.pool.none() || b_.row_pair,
                     workspace_ + b_.workspace.block},
                    lanes_, bias, output_in_y());
    }
    if (run_.non_temporal) hwy::FlushStream();
  }

 private:
  void note_input_paths() const {
    if (input_.stages()) note_path(p_.nhwc ? Path::depthwise_staged_nhwc : Path::depthwise_staged_nchw, run_.target);
    if (input_.reads_in_place()) note_path(Path::depthwise_staged_in_place, run_.target);
    if (input_.stages() && input_.reads_in_place()) note_path(Path::depthwise_staged_edge_strips, run_.target);
  }

  /// Strips are [row][column][padded lanes] from either layout.
  void stage() {
    const Strides strides = x_strides(p_);
    const StripKernels& kernels = strip_kernels(run_.target);
    const auto& functions = p_.nhwc ? kernels.stage_nhwc : kernels.stage_nchw_lanes;
    input_.prepare(advance(run_.x, p_.dtype, place_.first_image * strides.image + lanes_.first * strides.channel),
                   lanes_.lanes, {functions[static_cast<std::size_t>(p_.dtype)], lanes_.padded, true}, workspace_);
  }

  void* output_in_y() const {
    return advance(run_.y, p_.dtype, output_offset(p_, place_.first_image, window_, lanes_.first));
  }
  OutputPlace output_place() const {
    if (b_.tile_stores) {
      const Strides strides = y_strides(p_);
      return {static_cast<float*>(output_in_y()), strides.row, strides.pixel};
    }
    const std::int64_t pixels = b_.row_pair ? window_.pixels : window_.conv_pixels;
    return {workspace_ + b_.workspace.strip, pixels * lanes_.padded, lanes_.padded};
  }

  void compute_panel(std::int64_t lane, const float* bias) const {
    const std::int64_t panel_lanes = std::min(b_.panel_lanes, lanes_.padded - lane);
    const auto vectors = static_cast<std::size_t>(panel_lanes / run_.kernels.lanes);
    DepthwiseStagedCall call{};
    call.weights = run_.packed + (lanes_.first + lane) * p_.r * p_.s;
    call.kernel_w = p_.s;
    call.y = {.y = nullptr,
              .row = output_.row,
              .px = output_.px,
              .lanes = static_cast<int>(b_.tile_stores ? std::min(panel_lanes, lanes_.lanes - lane) : panel_lanes),
              .bias = b_.tile_stores && bias != nullptr ? bias + lane : nullptr,
              .relu = b_.tile_stores && p_.activation == Activation::relu,
              .non_temporal = run_.non_temporal};
    compute_rows(call, lane, b_.row_pair ? run_.kernels.row_pair[vectors] : run_.kernels.row[vectors]);
  }

  void compute_rows(DepthwiseStagedCall& call, std::int64_t lane, const DepthwiseStagedFunction* functions) const {
    const Tiles tiles = tiles_of(b_, window_);
    for (std::int64_t row = 0; row < window_.conv_rows; row += tiles.step) {
      // The padding of a row pair is staged.
      call.rows =
          b_.row_pair ? TapRange{0, p_.r} : taps_inside(window_.x_row + row * p_.stride_h, p_.h, p_.dilation_h, p_.r);
      std::int64_t pixel = 0;
      for (std::int64_t tile = 0; tile < tiles.count; ++tile) {
        const std::int64_t width = tiles.width(tile);
        call.x = input_.at(row, pixel);
        call.x.x += lane;
        call.y.y = output_.at(row / tiles.step, pixel / tiles.step) + lane;
        functions[width](call);
        pixel += width;
      }
    }
  }

  const StagedRun& run_;
  const DepthwiseStagedBlocking& b_;
  const Conv2dProblem& p_;
  UnitPlace place_;
  UnitWindow window_;
  UnitLanes lanes_;
  float* workspace_;
  UnitInput input_;
  OutputPlace output_;
};

std::string describe_staging(const DepthwiseStagedBlocking& b) {
  return describe_input(b.problem, b.units, [&](const UnitWindow& window, const UnitPlace& place) {
    return pixels_in_place(b, window, lanes_of(b, place));
  });
}

}  // namespace

std::string depthwise_staged_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (!is_depthwise(p)) {
    return text(p.groups) + (p.groups == 1 ? " group of " : " groups of ") + text(p.group_c()) + " input and " +
           text(p.group_k()) + " output channels; it takes several groups of one each";
  }
  return "";
}

DepthwiseStagedPlan::DepthwiseStagedPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("depthwise_staged", problem, target, threads)),
      target_(&target),
      kernels_(&depthwise_staged_kernels(target)),
      threads_(threads),
      blocking_(choose_blocking(problem, *kernels_, threads)),
      workspace_(static_cast<std::size_t>(threads) * blocking_.workspace.floats) {
  if (problem_.k % kernels_->lanes != 0) clear_leftovers(workspace_.data(), workspace_.size());
}

std::size_t DepthwiseStagedPlan::packed_bytes() const {
  return static_cast<std::size_t>(packed_lanes() * problem_.r * problem_.s) * sizeof(float);
}

Packing DepthwiseStagedPlan::packing() const {
  return packing_of(problem_, "depthwise_staged", {blocking_.panel_lanes, kernels_->lanes});
}

void DepthwiseStagedPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  auto* out = static_cast<float*>(packed);
  for (std::int64_t panel = 0; panel < packed_lanes(); panel += blocking_.panel_lanes) {
    const std::int64_t lanes = std::min(blocking_.panel_lanes, packed_lanes() - panel);
    const std::int64_t valid = std::min(lanes, p.k - panel);
    for (std::int64_t kh = 0; kh < p.r; ++kh) {
      for (std::int64_t kw = 0; kw < p.s; ++kw) {
        const std::int64_t source = panel * strides.out + kh * strides.row + kw * strides.column;
        for (std::int64_t lane = 0; lane < valid; ++lane) {
          out[lane] = element_as_f32(weights, p.dtype, source + lane * strides.out);
        }
        std::fill(out + valid, out + lanes, 0.0f);
        out += lanes;
      }
    }
  }
}

void DepthwiseStagedPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const DepthwiseStagedBlocking& b = blocking_;
  const std::size_t vector_bytes = static_cast<std::size_t>(kernels_->lanes) * sizeof(float);
  const bool aligned = reinterpret_cast<std::uintptr_t>(y) % vector_bytes == 0;
  const StagedRun run{*target_,
                      *kernels_,
                      b,
                      x,
                      static_cast<const float*>(packed),
                      problem_.bias ? bias : nullptr,
                      y,
                      workspace_.data(),
                      b.non_temporal && aligned};
  note_path(b.row_pair ? Path::depthwise_staged_row_pair : Path::depthwise_staged_tile, *target_);
  if (run.non_temporal) note_path(Path::depthwise_staged_non_temporal, *target_);
  if (!b.tile_stores) note_path(Path::depthwise_staged_store, *target_);
  parallel_units(threads_, b.units.count(),
                 [&run](std::int64_t unit, int thread) { Unit(run, unit, thread).compute(); });
}

Conv2dDescription DepthwiseStagedPlan::description() const {
  const DepthwiseStagedBlocking& b = blocking_;
  const Tiles tiles = tiles_of(b, unit_window(b.problem, b.units, b.units.at(0)));
  Conv2dDescription d;
  d.kernel = "depthwise_staged";
  d.target = target_->name;
  d.tile = text(tiles.step) + "x" + text(tiles.width(0)) + " pixels x " +
           text(std::min(b.panel_lanes, packed_lanes())) + " lanes";
  d.blocking = "out tile " + text(std::min<std::int64_t>(kPartitionLanes, problem_.k)) + " lanes, unit " +
               describe_units(b.units);
  d.fusion = describe_staging(b) + ", " + describe_epilogue(problem_, b.row_pair, b.tile_stores) +
             (b.non_temporal ? ", non-temporal stores" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
