// Estimated times of the f32 kernels, by which a device chooses among those that take a problem. An estimate is
//   max(cycles / clock, bytes / bandwidth) of the busiest thread
// with cycles = products at the rate of the FMA units, plus what a tile, a run of its loop and a copied vector cost.
// Clock and bandwidth are nominal: only the order of estimates counts. The costs were fitted on a random half of the
// layers of 50 networks on Zen 4, see bench/results/README.md.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <limits>

#include "cpu/common/target.h"

namespace gable::cpu {

/// The time of what a kernel has no model of: it then keeps its place in the list.
constexpr double kNoEstimate = std::numeric_limits<double>::infinity();

/// Whether the models hold: f32 NHWC, and no pool.
constexpr bool has_estimate(const Conv2dProblem& p) { return p.dtype == DType::f32 && p.nhwc && p.pool.none(); }

/// Cycles of a fused multiply-add of `lanes` f32 lanes.
double fma_cycles(const Target& target, std::int64_t lanes);

/// Kernel rows inside the image, summed over all output rows of an image.
double kernel_rows_inside(const Conv2dProblem& p);

/// Work in cycles, cut into `units`, on `threads` threads.
double estimated_seconds(const Conv2dProblem& p, double cycles, std::int64_t units, int threads);

}  // namespace gable::cpu
