// Estimated times of the kernels of f32 arithmetic for NHWC; direct has one for windows in NCHW too, on several threads
// of a Xeon with AMX. A device chooses the kernel with the least one. An estimate is
//   max(cycles / clock, bytes / bandwidth) of the busiest thread
// with cycles = products at the rate of the FMA units, plus what a tile, a run of its loop and a copied vector cost.
// Types of 16 bits also cost conversions. Clock and bandwidth are nominal: only the order of estimates counts. The
// costs were fitted on Zen 4, some on Zen 5 and Xeons with AMX, on random layers, and checked on others, see
// bench/results/tried.md.
#pragma once

#include <gable/problem.h>

#include <cstdint>
#include <limits>

#include "cpu/common/target.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {

/// The estimate of a kernel that has no model for the problem: the kernel then keeps its place in the list.
constexpr double kNoEstimate = std::numeric_limits<double>::infinity();

/// Whether the models hold: NHWC, and no pool.
constexpr bool has_estimate(const Conv2dProblem& p) { return p.nhwc && p.pool.none(); }

/// Cycles of a fused multiply-add of `lanes` f32 lanes.
double fma_cycles(const Target& target, std::int64_t lanes);

/// Cycles to read a vector of f32 weights in a tile's step: the limit of tiles of one or two pixels.
double weights_cycles(const Conv2dProblem& p);

/// The cost of a vector on this core over its cost on the cores on which the estimates of NCHW were fitted: Zen 4,
/// which halves vectors of 16 lanes, and Xeons with AMX, whose clock is lower.
double whole_vector_share(std::int64_t lanes);

/// Kernel rows inside the image, summed over all output rows of an image.
double kernel_rows_inside(const Conv2dProblem& p);

/// Cycles to widen or narrow a run of elements: a fixed cost, and a cost for each 16 elements.
struct ConversionCost {
  double run, vector;
};
/// Cycles to convert `runs` runs of `count` elements; 0 in f32.
inline double conversion_cycles(const Conv2dProblem& p, std::int64_t runs, std::int64_t count,
                                const ConversionCost& cost) {
  if (p.dtype == DType::f32) return 0;
  return static_cast<double>(runs) * (cost.run + cost.vector * static_cast<double>(ceil_div(count, 16)));
}

/// Cycles, by the clock of estimates, to begin and to end a parallel region of so many threads; 0 for one thread. It
/// opens for as many threads as the device has, however few of them get a unit.
double region_cycles(int threads);
double region_seconds(int threads);
/// The cycles of work that take as long on one thread as on several with their region.
double break_even_cycles(int threads);

/// Work in cycles, cut into `units`, on `threads` threads.
double estimated_seconds(const Conv2dProblem& p, double cycles, std::int64_t units, int threads);

}  // namespace gable::cpu
