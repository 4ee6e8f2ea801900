// A plan's decisions, weight packing and description. The loops themselves are in conv2d_run.cpp.
#include "cpu/direct/conv2d.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/common/half.h"
#include "cpu/direct/conv2d_run.h"

namespace gable::cpu {
namespace {

const Conv2dProblem& checked(const Conv2dProblem& problem, const Target& target, int threads) {
  check(problem);
  if (!target.supported) {
    throw std::invalid_argument("conv2d: target " + std::string(target.name) + " is not supported by this CPU");
  }
  if (threads < 1) {
    throw std::invalid_argument("conv2d: threads is " + std::to_string(threads) + ", must be at least 1");
  }
  return problem;
}

/// Lanes of all panels of one group: whole partition tiles, then whole vectors.
std::int64_t packed_lanes(const Conv2dBlocking& b, int vector_lanes) {
  return round_up(b.geometry.group_k, vector_lanes);
}

}  // namespace

Conv2dPlan::Conv2dPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked(problem, target, threads)),
      target_(&target),
      kernels_(&conv2d_kernels(target)),
      threads_(threads),
      blocking_(choose_blocking(problem, *kernels_, threads)),
      workspace_(static_cast<std::size_t>(threads) * blocking_.thread_floats) {}

std::size_t Conv2dPlan::packed_floats() const {
  const Conv2dGeometry& g = blocking_.geometry;
  return static_cast<std::size_t>(g.groups * packed_lanes(blocking_, kernels_->lanes) * g.group_c * problem_.r *
                                  problem_.s);
}

// Order: [group][panel][in tile][kh][kw][in lane][lane], so that a register tile reads its weights as one linear
// stream. Panels have panel_lanes lanes, the last one of a group whole vectors; lanes past the last channel are zero.
void Conv2dPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dBlocking& b = blocking_;
  const Conv2dGeometry& g = b.geometry;
  const std::int64_t group_lanes = packed_lanes(b, kernels_->lanes);
  auto* out = static_cast<float*>(packed);
  for (std::int64_t group = 0; group < g.groups; ++group) {
    for (std::int64_t panel = 0; panel < group_lanes; panel += b.panel_lanes) {
      const std::int64_t lanes = std::min(b.panel_lanes, group_lanes - panel);
      const std::int64_t valid = std::min(lanes, g.group_k - panel);
      for (std::int64_t tile = 0; tile < g.group_c; tile += b.in_lanes) {
        const std::int64_t tile_end = std::min(tile + b.in_lanes, g.group_c);
        for (std::int64_t kh = 0; kh < problem_.r; ++kh) {
          for (std::int64_t kw = 0; kw < problem_.s; ++kw) {
            for (std::int64_t in = tile; in < tile_end; ++in) {
              const std::int64_t source =
                  (group * g.group_k + panel) * strides.out + in * strides.in + kh * strides.row + kw * strides.column;
              for (std::int64_t lane = 0; lane < valid; ++lane) {
                out[lane] = element_as_f32(weights, problem_.dtype, source + lane * strides.out);
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
  const Conv2dRun run{problem_,
                      *target_,
                      *kernels_,
                      blocking_,
                      x,
                      static_cast<const float*>(packed),
                      problem_.bias ? bias : nullptr,
                      y,
                      workspace_.data(),
                      blocking_.streams && aligned};
  run_conv2d(run, threads_);
}

Conv2dDescription Conv2dPlan::description() const {
  const Conv2dBlocking& b = blocking_;
  const Conv2dGeometry& g = b.geometry;
  Conv2dDescription d;
  d.kernel = g.depthwise ? "depthwise_staged" : "direct";
  d.target = target_->name;
  d.tile = ((b.row_pair && g.depthwise) || b.image_pair ? "2x" : "1x") + text(b.tile_pixels) + " pixels x " +
           text(b.panel_lanes) + " lanes";
  d.blocking = "out tile " + text(std::min<std::int64_t>(kPartitionLanes, g.group_k)) + " lanes, in tile " +
               text(b.in_lanes) + ", chunk " + text(std::min(b.chunk_channels, g.group_c)) + " channels, unit " +
               (b.unit_images > 1 ? text(b.unit_images) + "x" : "") + text(b.unit_rows) + "x" + text(b.unit_pixels) +
               " outputs, " + text(b.units) + " units";
  d.fusion = std::string(b.never_staged
                             ? (b.trims ? "input in place without its padding" : "input in place")
                             : (problem_.dtype == DType::f32 && problem_.nhwc ? "input staged where tiles touch padding"
                                                                              : "input staged")) +
             ", " +
             (problem_.pool.none() ? "no pool"
              : b.row_pair         ? "max-pool in the tile"
                                   : "max-pool in an L2 strip") +
             ", bias and activation " + (b.tile_stores ? "in registers" : "in an L2 strip") +
             (b.streams ? ", stores past the caches" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
