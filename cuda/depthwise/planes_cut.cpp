// See planes.h: how many planes or strips a block takes, by an estimate of the time.
#include <algorithm>
#include <cmath>

#include "cuda/depthwise/planes.h"

namespace gable::cuda {
namespace {

constexpr std::int64_t kSharedBytes = 40 * 1024;  // of a block: several fit onto a multiprocessor

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool fits(const Conv2dProblem& p, const DepthwisePlanesVariant& v) {
  return !p.nhwc && p.r == v.window && p.s == v.window && p.stride_h == v.stride && p.stride_w == v.stride &&
         p.dilation_h == 1 && p.dilation_w == 1;
}

/// Instructions that a warp issues for one strip of each of its threads.
double instructions(const DepthwisePlanesVariant& v, double rows) {
  const double slots = std::ceil(static_cast<double>(v.window) / v.stride);
  const double steps = rows + slots - 1, taps = v.window * v.window;
  return (v.window == 3 ? steps : rows) * taps +               // products
         steps * v.stride * (4 * v.window + 12 + 3 * slots) +  // reads, conversions
         rows * 10 +                                           // activation, conversion, stores
         3 * taps + 60;                                        // weights, addresses
}

/// Seconds of a cut: the longer of the memory's time and the waves of blocks. Each block waits once for its input.
double estimate(const Conv2dProblem& p, const cudaDeviceProp& device, const DepthwisePlanesCut& cut) {
  // kLaunch is what a CUDA graph leaves of a launch, whatever the cut.
  constexpr double kClock = 1.7e9, kLaunch = 0.4e-6, kStart = 1800;
  const DepthwisePlanes& d = cut.planes;
  const double sms = device.multiProcessorCount;
  const double shared = static_cast<double>(device.sharedMemPerMultiprocessor);
  const double resident =
      std::max(1.0, std::min<double>(cut.variant->blocks, shared / (static_cast<double>(cut.shared_bytes) + 1024)));
  const double items = static_cast<double>(d.wo) * d.block_planes * d.block_strips;
  const double passes = std::ceil(items / kDepthwisePlanesThreads);
  const double warps = std::min(4.0, std::ceil(items / 32));
  const double copied = static_cast<double>(cut.shared_bytes) / 16 / kDepthwisePlanesThreads * 12;
  const double issued = passes * instructions(*cut.variant, d.rows) + copied;
  const double blocks = cut.blocks();
  const double full = std::floor(blocks / (sms * resident));
  const double rest = std::ceil(blocks / sms - full * resident);
  const auto wave = [&](double n) { return kStart + std::max(2.5 * issued, issued * n * warps / 4); };
  const double cycles = full * wave(resident) + (rest > 0 ? wave(rest) : 0);
  const double bytes = static_cast<double>(p.x_elements() + p.y_elements()) * static_cast<double>(size_of(p.dtype));
  return kLaunch + std::max(cycles / kClock, bytes / (bytes < 40e6 ? 5.5e12 : 4.3e12));
}

DepthwisePlanesCut cut_of(const Conv2dProblem& p, const DepthwisePlanesVariant& v, std::int64_t rows) {
  DepthwisePlanesCut cut{.variant = &v};
  DepthwisePlanes& d = cut.planes;
  d.c = static_cast<int>(p.c), d.h = static_cast<int>(p.h), d.w = static_cast<int>(p.w);
  d.ho = static_cast<int>(p.ho), d.wo = static_cast<int>(p.wo);
  d.pad_top = static_cast<int>(p.pad_top), d.pad_left = static_cast<int>(p.pad_left);
  d.planes = static_cast<int>(p.n * p.c);
  d.activation = p.activation;
  d.rows = static_cast<int>(rows);
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t strips = divided_up(p.ho, rows), plane_bytes = p.h * p.w * element;
  const std::int64_t wanted = std::max<std::int64_t>(1, kDepthwisePlanesThreads / p.wo);  // strips a block
  std::int64_t rows_in;
  if (strips <= wanted && plane_bytes <= kSharedBytes) {
    d.block_strips = static_cast<int>(strips);
    d.block_planes = static_cast<int>(std::clamp<std::int64_t>(wanted / strips, 1, kSharedBytes / plane_bytes));
    d.row_blocks = 1;
    rows_in = p.h * d.block_planes;
  } else {
    d.block_planes = 1;
    d.block_strips = static_cast<int>(std::min(strips, wanted));
    d.row_blocks = static_cast<int>(divided_up(strips, d.block_strips));
    rows_in = std::min(p.h, (d.block_strips * rows - 1) * v.stride + v.window);
  }
  cut.shared_bytes = static_cast<std::size_t>(divided_up(rows_in * p.w * element, 16) * 16 + 16);
  return cut;
}

}  // namespace

DepthwisePlanesCut best_planes_cut(const Conv2dProblem& p, const cudaDeviceProp& device) {
  DepthwisePlanesCut best;
  for (const DepthwisePlanesVariant& v : depthwise_planes_variants(p.dtype)) {
    if (!fits(p, v)) continue;
    for (std::int64_t strips = 1; strips <= p.ho; ++strips) {
      const std::int64_t rows = divided_up(p.ho, strips);
      if (divided_up(p.ho, rows) != strips) continue;  // the same cut as another
      DepthwisePlanesCut cut = cut_of(p, v, rows);
      if (cut.shared_bytes > static_cast<std::size_t>(kSharedBytes) + 32) continue;
      cut.seconds = estimate(p, device, cut);
      if (best.variant == nullptr || cut.seconds < best.seconds) best = cut;
    }
  }
  return best;
}

}  // namespace gable::cuda
