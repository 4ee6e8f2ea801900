// See strips_cut.h.
#include "cuda/depthwise/strips_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gable::cuda {
namespace {

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Instructions that a warp issues for one strip of `rows` rows.
double instructions(const DepthwiseStripsVariant& v, double rows) {
  const double slots = std::ceil(static_cast<double>(v.window) / v.stride);
  const double steps = rows + slots - 1;
  const double pixels = (v.columns - 1) * v.stride + v.window;
  const double taps = v.window * v.window;
  const double computed_rows = v.window == 3 ? steps : rows;
  return computed_rows * taps * (2 * v.columns + (v.window == 3 ? 0 : 1)) +  // products and reads of weights
         steps * v.stride * (8 * pixels + 20 + 4 * slots) +                  // copies, reads, conversions
         rows * (8 * v.columns + 10);                                        // activation, conversion, stores
}

/// Seconds of a cut: the longer of the memory's time and the time of the waves of blocks. Each wave begins with a
/// latency.
double estimate(const Conv2dProblem& p, const cudaDeviceProp& device, const DepthwiseStripsCut& cut) {
  // Fitted to 38 layers in f16 and f32, batch 1 and 32, on an H200 (1,017 cuts): instructions a cycle of a scheduler,
  // and cycles an instruction of a warp alone.
  // kLaunch is what a CUDA graph leaves of a launch, by 70 layers, whatever the cut.
  constexpr double kClock = 1.7e9, kLaunch = 0.1e-6, kStart = 1800, kRowLatency = 60, kRate = 0.65;
  constexpr double kHidden = 0.7;  // of the shorter time, memory's or the instructions'
  const DepthwiseStripsVariant& v = *cut.variant;
  const double sms = device.multiProcessorCount;
  const double resident = std::max<double>(
      1, std::min<double>(v.blocks, static_cast<double>(device.sharedMemPerMultiprocessor) / (v.shared_bytes + 1024)));
  const double blocks = cut.blocks();
  const double issued = instructions(v, cut.strips.rows);
  const double slots = std::ceil(static_cast<double>(v.window) / v.stride);
  const double alone = (cut.strips.rows + slots - 1) * v.stride * kRowLatency + 3.0 * issued;  // one warp by itself
  const double full_waves = std::floor(blocks / (sms * resident));
  const double rest = std::ceil(blocks / sms - full_waves * resident);
  double cycles = full_waves * std::max(alone, issued * resident / kRate);
  if (rest > 0) cycles += std::max(alone, issued * rest / kRate);
  const double bytes = static_cast<double>(p.x_elements() + p.y_elements()) * static_cast<double>(size_of(p.dtype));
  const double memory = bytes / (bytes < 40e6 ? 5.5e12 : 4.3e12), busy = (cycles + kStart) / kClock;
  return kLaunch + std::max(busy, memory) + (1 - kHidden) * std::min(busy, memory);
}

}  // namespace

bool strips_fit(const Conv2dProblem& p, const cudaDeviceProp& device, const DepthwiseStripsVariant& v) {
  const bool dilated = p.dilation_h != 1 || p.dilation_w != 1;
  return p.nhwc && p.c % 2 == 0 && p.r == v.window && p.s == v.window && p.stride_h == v.stride &&
         p.stride_w == v.stride && !(dilated && v.stride != 1) &&
         static_cast<std::size_t>(v.shared_bytes) <= device.sharedMemPerBlockOptin;
}

DepthwiseStripsCut strips_cut(const Conv2dProblem& p, const cudaDeviceProp& device, const DepthwiseStripsVariant& v,
                              int rows) {
  DepthwiseStripsCut cut{.variant = &v};
  DepthwiseStrips& d = cut.strips;
  d.c = static_cast<int>(p.c), d.h = static_cast<int>(p.h), d.w = static_cast<int>(p.w);
  d.ho = static_cast<int>(p.ho), d.wo = static_cast<int>(p.wo);
  d.pad_top = static_cast<int>(p.pad_top), d.pad_left = static_cast<int>(p.pad_left);
  d.step_h = static_cast<int>(v.stride == 1 ? p.dilation_h : 1);
  d.step_w = static_cast<int>(v.stride == 1 ? p.dilation_w : 1);
  d.activation = p.activation;
  const std::int64_t pairs = p.c / 2;
  d.channel_blocks = static_cast<int>(divided_up(pairs, kDepthwisePairs));
  d.block_pairs = static_cast<int>(divided_up(pairs, d.channel_blocks));
  const std::int64_t columns = divided_up(p.wo, d.step_w), all_rows = divided_up(p.ho, d.step_h);
  d.column_groups = static_cast<int>(divided_up(columns, v.columns));
  d.strips = static_cast<int>(divided_up(all_rows, rows));
  d.rows = static_cast<int>(divided_up(all_rows, d.strips));
  d.positions = static_cast<int>(p.n * d.step_h * d.strips * d.step_w * d.column_groups);
  cut.seconds = estimate(p, device, cut);
  return cut;
}

DepthwiseStripsCut best_strips_cut(const Conv2dProblem& p, const cudaDeviceProp& device) {
  DepthwiseStripsCut best;
  for (const DepthwiseStripsVariant& v : depthwise_strips_variants(p.dtype)) {
    if (!strips_fit(p, device, v)) continue;
    const std::int64_t all_rows = divided_up(p.ho, v.stride == 1 ? p.dilation_h : 1);
    for (std::int64_t strips = 1; strips <= all_rows; ++strips) {
      const int rows = static_cast<int>(divided_up(all_rows, strips));
      if (divided_up(all_rows, rows) != strips) continue;  // the same cut as another
      const DepthwiseStripsCut cut = strips_cut(p, device, v, rows);
      if (best.variant == nullptr || cut.seconds < best.seconds) best = cut;
    }
  }
  return best;
}

}  // namespace gable::cuda
