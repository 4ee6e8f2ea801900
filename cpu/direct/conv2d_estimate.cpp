// The time of Conv2dPlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/common/estimate.h"
#include "cpu/direct/conv2d.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kTile = 130;
constexpr double kRun = 24;

/// Runs of consecutive input lanes in one kernel row.
double runs_of_row(const Conv2dBlocking& b) {
  const Conv2dProblem& p = b.problem;
  if (p.dilation_w == 1 && p.groups == 1 && b.channels.in_lanes == p.c) return 1;
  return static_cast<double>(p.s * ceil_div(p.group_c(), b.channels.in_lanes));
}

}  // namespace

double conv2d_seconds(const Conv2dProblem& problem, const Target& target, int threads) {
  if (!has_estimate(problem)) return kNoEstimate;
  const Conv2dKernels& kernels = conv2d_kernels(target);
  const Conv2dBlocking b = choose_blocking(problem, kernels, threads);
  const Conv2dProblem& p = b.problem;
  const double kernel_rows = kernel_rows_inside(p);
  const auto pixels = static_cast<double>(p.wo);
  const auto tiles = static_cast<double>(ceil_div(p.wo, b.tile.pixels));
  const auto steps = static_cast<double>(p.s * p.group_c());
  double cycles = 0;
  std::int64_t lanes = 0;
  for (std::int64_t lane = 0; lane < p.group_k(); lane += lanes) {
    lanes = tile_panel_lanes(kernels, p.group_k() - lane);
    const auto vectors = static_cast<double>(std::max<std::int64_t>(1, lanes / kernels.lanes));
    const double products = pixels * steps * vectors * fma_cycles(target, std::min<std::int64_t>(lanes, kernels.lanes));
    cycles += kernel_rows * (products + tiles * runs_of_row(b) * kRun) + static_cast<double>(p.ho) * tiles * kTile;
  }
  // 16 bits are staged once for 128 output channels of a group, and stored by way of a strip.
  cycles += conversion_cycles(p, ceil_div(p.group_k(), kPartitionLanes) * p.h * p.w, p.group_c()) +
            conversion_cycles(p, p.ho * p.wo, p.group_k());
  return estimated_seconds(problem, cycles * static_cast<double>(p.n * p.groups), b.units.count(), threads);
}

}  // namespace gable::cpu
