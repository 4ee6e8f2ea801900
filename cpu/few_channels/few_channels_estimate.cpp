// The time of FewChannelsPlan's loops: see estimate.h.
#include <algorithm>

#include "cpu/common/estimate.h"
#include "cpu/few_channels/few_channels.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kTile = 100;
constexpr double kStoredVector = 20;  // of pixels, by way of a plane
constexpr double kRun = 4;
constexpr double kCopiedFloat = 0.3;
constexpr double kSplitFloat = 0.8;

}  // namespace

double few_channels_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p)) return kNoEstimate;
  const FewChannelsKernels& kernels = few_channels_kernels(target);
  const FewChannelsBlocking b = few_channels_blocking(p, kernels, threads);
  const double fma = fma_cycles(target, kernels.lanes);
  const auto steps = static_cast<double>(few_channels_steps(p));
  const auto rows = static_cast<double>(p.n * p.ho);
  const double input = static_cast<double>(p.x_elements()) * (b.strip.planes ? kSplitFloat : kCopiedFloat);
  double cycles = input;
  if (b.tile.pixel_lanes) {
    const auto vectors = static_cast<double>(ceil_div(p.wo, kernels.lanes));
    cycles += rows * vectors * static_cast<double>(p.k) * (steps * fma + kStoredVector);
  } else {
    const auto vectors = static_cast<double>(ceil_div(p.k, kernels.lanes));
    const double panels = vectors / static_cast<double>(b.tile.vectors);
    const auto tiles = static_cast<double>(ceil_div(p.wo, widest_tile(kernels, b.tile)));
    const double runs = steps / static_cast<double>(b.strip.run_steps);
    cycles += rows * (static_cast<double>(p.wo) * vectors * steps * fma + tiles * panels * (kTile + runs * kRun));
  }
  cycles += conversion_cycles(p, p.n * p.ho * p.wo, p.k);
  return estimated_seconds(p, cycles, p.n * b.units.row_blocks, threads);
}

}  // namespace gable::cpu
