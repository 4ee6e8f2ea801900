// Which problems the 1x1 kernel takes, its packing, and its description.
#include "cpu/pointwise/pointwise.h"

#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/check.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/strides.h"
#include "cpu/common/tiling.h"
#include "cpu/pointwise/pointwise_unit.h"

namespace gable::cpu {

std::string pointwise_refusal(const Conv2dProblem& all, const Target& target) {
  const Conv2dProblem p = problem_of_group(all);
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (p.r * p.s != 1) return "kernel " + text(p.r) + "x" + text(p.s) + ": it is made for 1x1";
  if (all.groups > 1 && all.dtype != DType::f32) return text(all.groups) + " groups of 16 bits: it takes one";
  if (all.groups > 1 && p.k <= pointwise_kernels(target).lanes / 2) {
    return text(p.k) + " output channels in each of " + text(all.groups) + " groups: they fill half a vector at most";
  }
  if (!p.nhwc) return "layout nchw: it reads a pixel's channels as neighbours";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.activation == Activation::tanh) return "it fuses relu, not tanh";
  if (p.pad_top != 0 || p.pad_left != 0 || (p.ho - 1) * p.stride_h >= p.h || (p.wo - 1) * p.stride_w >= p.w) {
    return "it takes no padding";
  }
  const PointwiseKernels& kernels = pointwise_kernels(target);
  if (is_matrix_by_vector(p, kernels)) return "";
  if (cached_pixels(p) < kMinTilesPerBand * kernels.most_pixels[kPanelVectors]) {
    return text(p.c) + " input channels: too many for L2 in one piece";
  }
  const std::int64_t pixels = p.n * p.ho * p.wo;
  if (pixels < kernels.most_pixels[kPanelVectors] && !l2_keeps_weights(p)) {
    return text(pixels) + " pixels under weights beyond half of L2: each is used once, and better read further ahead";
  }
  if (reads_weights_once(p)) {
    return "weights beyond the last level: units that share them had better follow one another";
  }
  return "";
}

PointwisePlan::PointwisePlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("pointwise", problem, target, threads)),
      group_(problem_of_group(problem)),
      target_(&target),
      kernels_(&pointwise_kernels(target)),
      threads_(threads),
      blocking_(pointwise_blocking(problem, *kernels_, threads)),
      workspace_(static_cast<std::size_t>(problem_.groups * padded_lanes()) +
                     static_cast<std::size_t>(threads) * strip_floats(),
                 static_cast<std::size_t>(problem_.groups * padded_lanes())) {}

std::int64_t PointwisePlan::padded_lanes() const { return round_up(group_.k, kernels_->least_lanes); }

std::size_t PointwisePlan::strip_floats() const {
  if (!blocking_.copies_input) return 0;
  const std::int64_t pixels = std::min(blocking_.band_pixels, blocking_.units.pixels);
  return thread_part_floats(pixels * blocking_.strip_pixel);
}

std::size_t PointwisePlan::packed_bytes() const {
  return static_cast<std::size_t>(problem_.groups * group_weights()) * sizeof(float);
}

/// A panel of four vectors reads two panels of two, so the tile does not matter.
Packing PointwisePlan::packing() const {
  return packing_of(problem_, "pointwise", {packed_panel_lanes(*kernels_, group_.k), padded_lanes()});
}

void PointwisePlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  auto* out = static_cast<float*>(packed);
  for (std::int64_t first = 0; first < problem_.k; first += group_.k) {
    const std::int64_t end = first + group_.k;
    std::int64_t lanes = 0;
    for (std::int64_t panel = first; panel < end; panel += lanes) {
      lanes = packed_panel_lanes(*kernels_, end - panel);
      for (std::int64_t channel = 0; channel < group_.c; ++channel) {
        for (std::int64_t lane = panel; lane < panel + lanes; ++lane) {
          const std::int64_t source = lane * strides.out + channel * strides.in;
          *out++ = lane < end ? element_as_f32(weights, problem_.dtype, source) : 0.0f;
        }
      }
    }
  }
}

void PointwisePlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const PointwiseBlocking& b = blocking_;
  const Conv2dProblem& p = problem_;
  float* padded_bias = workspace_.data();
  // A copy would take the lines from the caches of all other threads in every run.
  const bool in_place = p.bias && padded_lanes() == group_.k;
  for (std::int64_t group = 0; p.bias && !in_place && group < p.groups; ++group) {
    std::copy_n(bias + group * group_.k, group_.k, padded_bias + group * padded_lanes());
  }
  float* strips = padded_bias + p.groups * padded_lanes();
  const std::size_t vector_bytes = static_cast<std::size_t>(kernels_->lanes) * sizeof(float);
  const PointwiseRun run{.problem = group_,
                         .pixel_inputs = p.c,
                         .pixel_outputs = p.k,
                         .kernels = *kernels_,
                         .blocking = b,
                         .x = x,
                         .packed = static_cast<const float*>(packed),
                         .bias = in_place ? bias : padded_bias,
                         .y = y,
                         .non_temporal = b.non_temporal && reinterpret_cast<std::uintptr_t>(y) % vector_bytes == 0};
  note_path(b.holds_weights    ? Path::pointwise_held_weights
            : b.runs_of_tiles  ? Path::pointwise_narrow
            : b.run_pixels > 0 ? Path::pointwise_runs_of_panels
            : !b.copies_input  ? Path::pointwise_in_place
            : b.widens_tiles   ? Path::widened_pointwise
            : b.panels_outside ? Path::pointwise_panels_outside
                               : Path::pointwise_staged,
            *target_);
  if (run.non_temporal) note_path(Path::pointwise_non_temporal, *target_);
  parallel_units(threads_, units(), run_times_, [&](std::int64_t unit, int thread) {
    float* const strip = strips + static_cast<std::size_t>(thread) * strip_floats();
    if (p.groups == 1) return compute_pointwise_unit(run, unit, strip);
    const std::int64_t lane_blocks = b.units.lane_blocks, of_pixels = p.groups * lane_blocks;
    const std::int64_t group = unit % of_pixels / lane_blocks;
    PointwiseRun of_group = run;
    of_group.x = advance(x, p.dtype, group * group_.c);
    of_group.packed += group * group_weights();
    of_group.bias += group * padded_lanes();
    of_group.y = advance(y, p.dtype, group * group_.k);
    compute_pointwise_unit(of_group, unit / of_pixels * lane_blocks + unit % lane_blocks, strip);
  });
}

Conv2dDescription PointwisePlan::description() const {
  const PointwiseBlocking& b = blocking_;
  Conv2dDescription d;
  d.kernel = "pointwise";
  d.target = target_->name;
  const bool narrow = b.runs_of_tiles && group_.k <= kPanelVectors * kernels_->lanes;
  const std::int64_t lanes = narrow ? packed_panel_lanes(*kernels_, group_.k) : b.tile.vectors * kernels_->lanes;
  d.tile = text(b.holds_weights ? kHeldPixels : b.tile.pixels) + " pixels x " + text(lanes) + " lanes";
  d.blocking = std::string(b.panels_outside ? "each panel of weights through " + text(b.band_pixels) + " pixels"
                                            : "each tile through all panels") +
               ", unit " + text(b.units.pixels) + " pixels x " + text(b.units.lanes) + " lanes, " + text(units()) +
               " units";
  d.fusion = std::string(problem_.dtype != DType::f32 ? "input widened to strips"
                         : b.copies_input             ? "input copied to strips"
                                                      : "input in place") +
             ", no pool, bias and activation in registers" + (b.non_temporal ? ", non-temporal stores" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
