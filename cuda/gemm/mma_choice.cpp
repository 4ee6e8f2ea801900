// See mma_choice.h.
#include "cuda/gemm/mma_choice.h"

#include <algorithm>
#include <limits>

namespace gable::cuda {
namespace {

constexpr MmaCandidate kCandidates[] = {
    {128, 128, 1.0}, {128, 64, 0.9}, {128, 32, 0.6}, {64, 64, 0.8}, {64, 32, 0.5}, {32, 32, 0.3},
};

/// The busiest multiprocessor's products or loads, plus the latency of one block; or the memory's time. From the rates
/// of instructions and latencies of an H200; not fitted to measurements yet.
double seconds_of(const Conv2dProblem& p, const ImplicitGemm& g, const MmaCandidate& c, int splits, bool cluster,
                  const cudaDeviceProp& device) {
  constexpr double kHertz = 1.7e9, kStart = 2.0e-6;
  constexpr double kBlock = 900, kStepLatency = 60;
  const auto element = static_cast<double>(size_of(p.dtype));
  const double stage_depth = 64 / element;
  const std::int64_t tiles = ceil_div(g.rows, c.rows) * ceil_div(g.columns, c.columns) * g.groups;
  const std::int64_t blocks = tiles * splits;
  const int stages = static_cast<int>(ceil_div(g.depth, 64 / static_cast<int>(element)));
  const double steps = static_cast<double>(ceil_div(stages, splits));
  const double share = static_cast<double>(ceil_div(blocks, device.multiProcessorCount));
  const double fma = p.dtype == DType::f32 ? 512 : 1024;
  const double products = steps * stage_depth * c.rows * c.columns / fma / c.rate;
  const double bytes = steps * 64 * (c.rows + c.columns);
  const double busy = share * (std::max(products, bytes / 40) + 150);
  const double latency = kBlock + steps * kStepLatency + (splits > 1 ? 700 : 0);
  const double memory = (static_cast<double>(p.x_elements()) + static_cast<double>(p.y_elements())) * element / 4e12;
  double seconds = kStart + std::max((busy + latency) / kHertz, memory);
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
