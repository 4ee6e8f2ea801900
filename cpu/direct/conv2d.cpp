// A plan's decisions, weight packing and description. The loops themselves are in conv2d_run.cpp.
#include "cpu/direct/conv2d.h"

#include <algorithm>

#include "cpu/common/half.h"
#include "cpu/common/unit_description.h"
#include "cpu/direct/conv2d_run.h"

namespace gable::cpu {
namespace {

/// The pixels of the widest register tile that runs.
std::int64_t widest_tile(const Conv2dBlocking& b) {
  return tiles_of(b, unit_window(b.problem, b.units, b.units.at(0))).width(0);
}

std::string describe_input(const Conv2dBlocking& b) {
  if (b.input.never_staged) return b.input.skips_padding ? "input in place without its padding" : "input in place";
  return describe_input(b.problem, b.units,
                        [&](const UnitWindow& window, const UnitPlace&) { return pixels_in_place(b, window); });
}

}  // namespace

Conv2dPlan::Conv2dPlan(const Conv2dProblem& problem, const Conv2dKernels& kernels, const Target& target, int threads)
    : problem_(checked("conv2d", problem, target, threads)),
      target_(&target),
      kernels_(&kernels),
      threads_(threads),
      blocking_(choose_blocking(problem, *kernels_, threads)),
      workspace_(static_cast<std::size_t>(threads) * blocking_.workspace.floats) {}

std::int64_t Conv2dPlan::packed_lanes() const { return round_up(problem_.group_k(), kernels_->least_lanes); }

std::size_t Conv2dPlan::packed_floats() const {
  return static_cast<std::size_t>(problem_.groups * packed_lanes() * problem_.group_c() * problem_.r * problem_.s);
}

Packing Conv2dPlan::packing() const {
  return packing_of(problem_, "direct", {blocking_.tile.panel_lanes, blocking_.channels.in_lanes, kernels_->lanes});
}

// Order: [group][panel][in tile][kh][kw][in lane][lane], so that a register tile reads its weights as one linear
// stream. A group's last panels may be narrower (tile_panel_lanes()); lanes past the last channel are zero.
void Conv2dPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  const std::int64_t in_lanes = blocking_.channels.in_lanes;
  auto* out = static_cast<float*>(packed);
  for (std::int64_t group = 0; group < p.groups; ++group) {
    std::int64_t lanes = 0;
    for (std::int64_t panel = 0; panel < p.group_k(); panel += lanes) {
      lanes = tile_panel_lanes(*kernels_, p.group_k() - panel);
      const std::int64_t valid = std::min(lanes, p.group_k() - panel);
      for (std::int64_t tile = 0; tile < p.group_c(); tile += in_lanes) {
        const std::int64_t tile_end = std::min(tile + in_lanes, p.group_c());
        for (std::int64_t kh = 0; kh < p.r; ++kh) {
          for (std::int64_t kw = 0; kw < p.s; ++kw) {
            for (std::int64_t in = tile; in < tile_end; ++in) {
              const std::int64_t source = (group * p.group_k() + panel) * strides.out + in * strides.in +
                                          kh * strides.row + kw * strides.column;
              for (std::int64_t lane = 0; lane < valid; ++lane) {
                out[lane] = element_as_f32(weights, p.dtype, source + lane * strides.out);
              }
              std::fill(out + valid, out + lanes, 0.0f);
              out += lanes;
            }
          }
        }
      }
    }
  }
}

void Conv2dPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const std::size_t vector_bytes = static_cast<std::size_t>(kernels_->lanes) * sizeof(float);
  const bool aligned = reinterpret_cast<std::uintptr_t>(y) % vector_bytes == 0;
  const Conv2dRun run{*target_,
                      *kernels_,
                      blocking_,
                      x,
                      static_cast<const float*>(packed),
                      problem_.bias ? bias : nullptr,
                      y,
                      workspace_.data(),
                      blocking_.tile.non_temporal && aligned};
  run_conv2d(run, threads_, run_times_);
}

Conv2dDescription Conv2dPlan::description() const {
  const Conv2dBlocking& b = blocking_;
  const Conv2dProblem& p = b.problem;
  Conv2dDescription d;
  d.kernel = "direct";
  d.target = target_->name;
  d.tile = ((b.tile.image_pair || b.tile.two_rows) ? "2x" : "1x") + text(widest_tile(b)) + " pixels x " +
           text(std::min(b.tile.panel_lanes, packed_lanes())) + " lanes";
  d.blocking = "out tile " + text(std::min(b.unit_lanes, p.group_k())) + " lanes, in tile " +
               text(b.channels.in_lanes) + ", chunk " + text(std::min(b.channels.chunk, p.group_c())) +
               " channels, unit " + describe_units(b.units);
  d.fusion = describe_input(b) + ", " + describe_epilogue(p, b.tile.row_pair, b.tile.stores) +
             (b.tile.non_temporal        ? ", non-temporal stores"
              : b.tile.prefetches_output ? ", prefetched output"
                                         : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
