// See mma_choice.h.
#include "cuda/gemm/mma_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gable::cuda {
namespace {

constexpr MmaCandidate kCandidates[] = {
    {128, 128, 1.0}, {128, 64, 0.65}, {128, 32, 0.6}, {64, 64, 0.7}, {64, 32, 0.5}, {32, 32, 0.35},
};

/// Seconds, bytes a second of device memory, and cycles: see seconds_of().
struct MmaCosts {
  double launch, memory_bytes, block, store_of_output, cluster, narrow_copy;
};
// Fitted to half of 363 layers with wgmma's estimates fixed, so that the kernel of the least time is picked.
constexpr MmaCosts kCosts16{1.16e-6, 3.57e12, 150, 0.577, 1425, 0.022};
constexpr MmaCosts kCosts32{1.37e-6, 1.79e12, 150, 0.567, 1289, 0.189};

/// Launch, then the greater of memory's time and of the cycles of the busiest multiprocessor: what its blocks compute,
/// load and store, and the chain of one block's steps, whose latency is seen where blocks are few.
double seconds_of(const Conv2dProblem& p, const ImplicitGemm& g, const MmaCandidate& c, int splits, bool cluster,
                  const cudaDeviceProp& device) {
  constexpr double kHertz = 1.755e9, kLoadBytes = 26.7, kStep = 395;
  const MmaCosts& costs = p.dtype == DType::f32 ? kCosts32 : kCosts16;
  const int element = static_cast<int>(size_of(p.dtype));
  const double fma = p.dtype == DType::f32 ? 512 : 1024;
  const double outputs = c.rows * c.columns;
  const std::int64_t tiles = ceil_div(g.rows, c.rows) * ceil_div(g.columns, c.columns) * g.groups;
  const auto share = static_cast<double>(ceil_div(tiles * splits, device.multiProcessorCount));
  const auto steps = static_cast<double>(ceil_div(ceil_div(std::int64_t{g.depth} * element, 64), splits));
  const std::int64_t copy =
      std::min<std::int64_t>(16, std::gcd(std::gcd(p.c, p.group_c()), std::int64_t{16}) * element);
  const double narrow = copy < 16 ? costs.narrow_copy * steps * c.rows * 4 * static_cast<double>(16 / copy) : 0;
  const double products = steps * 64 / element * outputs / (fma * c.rate), loads = steps * 64 * (c.rows + c.columns);
  const double busy =
      share * (std::max(products, loads / kLoadBytes) + costs.block + costs.store_of_output * outputs + narrow);
  const double cycles = std::cbrt(std::pow(busy, 3) + std::pow(kStep * steps, 3)) + (splits > 1 ? costs.cluster : 0);
  const auto elements =
      static_cast<double>(p.x_elements() + p.y_elements() + std::int64_t{g.columns} * g.groups * g.depth);
  double seconds = costs.launch + std::max(cycles / kHertz, elements * element / costs.memory_bytes);
  if (splits > 1 && !cluster) {
    seconds += 4e-6 + 4.0 * g.rows * g.groups * g.padded_k * (splits + 1) / 2e12;
  }
  return seconds;
}

}  // namespace

std::span<const MmaCandidate> mma_candidates() { return kCandidates; }

MmaChoice choose_mma(const Conv2dProblem& problem, const ImplicitGemm& gemm, const cudaDeviceProp& device,
                     const MmaChoice& forced) {
  const bool cluster = device.major >= 9 && forced.cluster;
  const int stage_depth = 64 / static_cast<int>(size_of(problem.dtype));
  MmaChoice best;
  double least = std::numeric_limits<double>::max();
  for (const MmaCandidate& c : kCandidates) {
    if ((forced.rows != 0 && forced.rows != c.rows) || (forced.columns != 0 && forced.columns != c.columns)) continue;
    for (const int splits : {1, 2, 4, 8}) {
      if (forced.splits != 0 ? forced.splits != splits : gemm.depth < 2 * splits * stage_depth && splits > 1) continue;
      const double seconds = seconds_of(problem, gemm, c, splits, cluster, device);
      if (seconds >= least) continue;
      least = seconds;
      best = {c.rows, c.columns, splits, cluster, seconds};
    }
  }
  return best;
}

}  // namespace gable::cuda
