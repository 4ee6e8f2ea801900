// The time of WidenedPointwisePlan's loops: see estimate.h.
#include "cpu/common/estimate.h"
#include "cpu/common/tiling.h"
#include "cpu/widened/widened.h"

namespace gable::cpu {
namespace {

// Cycles besides those of the f32 kernel.
constexpr double kVector = 3.5;  // of 16 elements that are converted
constexpr double kPixel = 14;    // that is widened alone, since its neighbours are not read
constexpr double kRun = 55;

}  // namespace

double widened_pointwise_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p)) return kNoEstimate;
  const std::int64_t all = p.n * p.ho * p.wo, of_piece = widened_piece_pixels(p, threads);
  const auto rounds = static_cast<double>(ceil_div(ceil_div(all, of_piece), threads));
  const auto pixels = static_cast<double>(all);
  const double channels = static_cast<double>(p.c + p.k) / 16;
  const double cycles = pixels * (kVector * channels + (p.stride_w > 1 ? kPixel : 0)) / threads + kRun;
  return rounds * pointwise_seconds(widened_piece(p, of_piece), target, 1) + estimated_seconds(p, cycles, 1, 1);
}

}  // namespace gable::cpu
