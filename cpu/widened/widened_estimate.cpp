// The time of WidenedPointwisePlan's loops: see estimate.h.
#include "cpu/common/estimate.h"
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
  Conv2dProblem wide = p;
  wide.dtype = DType::f32;
  wide.h = wide.ho;
  wide.w = wide.wo;
  wide.stride_h = wide.stride_w = 1;
  const auto pixels = static_cast<double>(p.n * p.ho * p.wo);
  const double channels = static_cast<double>(p.c + p.k) / 16;
  const double cycles = pixels * (kVector * channels + (p.stride_w > 1 ? kPixel : 0)) / threads + kRun;
  return pointwise_seconds(wide, target, threads) + estimated_seconds(p, cycles, 1, 1);
}

}  // namespace gable::cpu
