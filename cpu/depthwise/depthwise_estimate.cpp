// The time of the loops of DepthwisePlan and DepthwisePlanesPlan where a channel has several outputs: see estimate.h.
#include <algorithm>

#include "cpu/common/estimate.h"
#include "cpu/depthwise/depthwise.h"
#include "cpu/depthwise/depthwise_planes.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kProduct = 0.85;
constexpr double kTile = 28;
constexpr double kRun = 14;
constexpr double kSpreadVector = 5;  // of input, repeated for its outputs
constexpr double kSpreadVectorOf16Bits = 6;
constexpr ConversionCost kStored{0, 5};

}  // namespace

double depthwise_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p) || p.k == p.c) return kNoEstimate;
  const DepthwiseBlocking b = choose_depthwise_blocking(p, target, threads);
  const AxisCut columns(column_axis(p));
  const double kernel_rows = kernel_rows_inside(p);
  const auto pixels = static_cast<double>(p.wo);
  const auto tiles = static_cast<double>(ceil_div(p.wo, kMaxTileOutputs));
  const double spread_vector = p.dtype == DType::f32 ? kSpreadVector : kSpreadVectorOf16Bits;
  const auto spread = static_cast<double>(std::min(p.h, p.ho * p.r) * p.w);
  double cycles = 0;
  for (const ChannelSection& section : b.sections) {
    const double row = pixels * static_cast<double>(p.s) * kProduct * fma_cycles(target, section.lanes) +
                       tiles * static_cast<double>(columns.runs()) * kRun;
    cycles += static_cast<double>(section.vectors()) *
              (kernel_rows * row + static_cast<double>(p.ho) * tiles * kTile + spread * spread_vector);
  }
  cycles += conversion_cycles(p, p.ho * p.wo, p.k, kStored);
  return estimated_seconds(p, cycles * static_cast<double>(p.n), b.units(), threads);
}

double depthwise_planes_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!p.pool.none() || p.k == p.c) return kNoEstimate;
  // Nanoseconds of a vector's product, of an output, of an input that is staged, of a row of them, of an output plane.
  constexpr double kVector = 0.23, kOutput = 0.08, kOutputOf16Bits = 0.18, kStage = 0.14, kRow = 0.6, kPlane = 40;
  const std::int64_t lanes = depthwise_plane_kernels(target).lanes;
  const double share = whole_vector_share(lanes);
  const double output = (p.dtype == DType::f32 ? kOutput : kOutputOf16Bits) * share;
  const auto vectors = static_cast<double>(ceil_div(p.wo, lanes));
  const double sums = kernel_rows_inside(p) * static_cast<double>(p.s) * vectors * kVector * share;
  const double staged = static_cast<double>(p.h) * (static_cast<double>(p.w) * kStage + kRow);
  const double nanoseconds = static_cast<double>(p.k) * (sums + static_cast<double>(p.ho * p.wo) * output + kPlane) +
                             static_cast<double>(p.c) * staged;
  return static_cast<double>(p.n) * nanoseconds * 1e-9 / threads;
}

}  // namespace gable::cpu
