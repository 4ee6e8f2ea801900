// See planes_choice.h.
#include "cuda/gemm/planes_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace gable::cuda {
namespace {

constexpr PlanesCandidate kCandidates[] = {
    {128, 128, 0.626, 128, 2}, {128, 128, 0.561, 256, 2}, {128, 64, 0.449, 128, 3}, {64, 128, 0.502, 128, 3},
    {64, 64, 0.324, 128, 5},   {32, 128, 0.339, 128, 5},  {32, 64, 0.219, 128, 8},  {32, 32, 0.123, 128, 8},
};

/// Launch, then memory beside the busiest multiprocessor. A step of its blocks takes as long as the latency of one
/// block's, or as what all compute and load; then they store. A wave that is not full takes as long as a full one.
/// Cycles where nothing else is said. Fitted to every tile and split of 144 layers on an H200: picks take 1.025 of the
/// best one's time; fitted to half of them, 1.044 on the other half.
double seconds_of(const Conv2dProblem& p, const PlanesCandidate& c, int splits, int bundle,
                  const cudaDeviceProp& device) {
  constexpr double kHertz = 1.755e9, kLaunch = 1.07e-6, kFma16 = 1024, kFma32 = 512;
  constexpr double kL2Bytes = 4.13e12, kDeviceBytes = 3.3e12, kKept = 50e6;  // a second; of tensors that stay in L2
  constexpr double kLoadBytes = 64;                                          // from L2 to a multiprocessor, in a cycle
  constexpr double kStep = 237, kStepOfOutput = 4.93;       // latency of a step, and of each output of a thread in it
  constexpr double kSingle = 0.13;                          // of a pixel that is loaded alone, of all blocks
  constexpr double kSingles = 209, kSingleOfThread = 17.8;  // their latency in a step, and of each in a thread
  constexpr double kEpilogue = 625, kOutput = 0.132, kStore = 0.103, kOutputOfThread = 2.14, kCluster = 2350;
  constexpr double kOverlap = 3.37;  // of computing and moving: 1 would be their sum, infinity the longer one
  const PlanesAccess access = planes_access(p);
  const double outputs = c.channels * c.pixels, outputs_of_thread = outputs / c.threads;
  const std::int64_t pixels = p.n * p.ho * p.wo;
  const std::int64_t bundles = ceil_div(p.groups, bundle);
  const std::int64_t tiles = ceil_div(bundle * p.group_k(), c.channels) * ceil_div(pixels, c.pixels) * bundles;
  const std::int64_t share = ceil_div(tiles * splits, device.multiProcessorCount);
  const auto waves = static_cast<double>(ceil_div(share, c.residents));
  const double at_once = static_cast<double>(share) / waves;
  const auto steps = static_cast<double>(ceil_div(ceil_div(bundle * p.group_c(), planes_of_step(p.dtype)), splits));
  const auto planes = static_cast<double>(planes_of_step(p.dtype)), element = static_cast<double>(size_of(p.dtype));
  const double products = planes * outputs / ((p.dtype == DType::f32 ? kFma32 : kFma16) * c.rate);
  const double loads = planes * element * (c.channels + c.pixels) / kLoadBytes;
  double busy = std::max(products, loads), latency = kStep + kStepOfOutput * outputs_of_thread;
  if (access.load == 1) {
    busy += kSingle * planes * c.pixels;
    latency += kSingles + kSingleOfThread * planes * c.pixels / c.threads;
  }
  const double stores = outputs * kOutput + kStore * outputs / access.store;
  const double epilogue = kEpilogue + at_once * stores + kOutputOfThread * outputs_of_thread;
  const double cycles = waves * (steps * std::max(latency, at_once * busy) + epilogue) + (splits > 1 ? kCluster : 0);
  const double bytes =
      element * static_cast<double>(pixels * (p.c + p.k) + bundles * bundle * bundle * p.group_k() * p.group_c());
  const double computing = cycles / kHertz, moving = bytes / kL2Bytes + std::max(0.0, bytes - kKept) / kDeviceBytes;
  return kLaunch + std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap);
}

/// Groups that fill a tile's channels.
int filling_bundle(const Conv2dProblem& p, const PlanesCandidate& c) {
  return static_cast<int>(std::clamp<std::int64_t>(c.channels / p.group_k(), 1, p.groups));
}

bool may_split(const Conv2dProblem& p, int splits, int bundle) {
  return splits == 1 || bundle * p.group_c() >= 2 * splits * planes_of_step(p.dtype);
}

bool is_open(int forced, int value) { return forced == 0 || forced == value; }

}  // namespace

std::span<const PlanesCandidate> planes_candidates() { return kCandidates; }

bool planes_are_line(const Conv2dProblem& p) { return p.ho == p.h && p.wo == p.w; }

PlanesAccess planes_access(const Conv2dProblem& p) {
  const auto store = static_cast<int>(std::gcd(p.ho * p.wo, 16 / static_cast<std::int64_t>(size_of(p.dtype))));
  return {.load = planes_are_line(p) ? store : 1, .store = store};
}

std::int64_t planes_span(const Conv2dProblem& p) {
  const PlanesCandidate& widest = *std::ranges::max_element(kCandidates, {}, &PlanesCandidate::channels);
  const std::int64_t bundle = round_up(filling_bundle(p, widest) * p.group_c(), planes_of_step(p.dtype));
  const std::int64_t last_bundle = p.c - p.group_c();  // its first plane, at most
  return ((p.n - 1) * p.c + last_bundle + bundle) * p.h * p.w;
}

PlanesChoice choose_planes(const Conv2dProblem& p, const cudaDeviceProp& device, const PlanesChoice& forced) {
  if (forced.bundle < 0 || forced.bundle > p.groups) {
    throw std::invalid_argument("a bundle of " + std::to_string(forced.bundle) + " of " + std::to_string(p.groups) +
                                " groups");
  }
  PlanesChoice best;
  double least = std::numeric_limits<double>::max();
  for (const PlanesCandidate& c : kCandidates) {
    if (!is_open(forced.channels, c.channels) || !is_open(forced.pixels, c.pixels) ||
        !is_open(forced.threads, c.threads))
      continue;
    // One group, or as many as fill the tile.
    const int fewest = forced.bundle != 0 ? forced.bundle : 1;
    const int most = forced.bundle != 0 ? forced.bundle : filling_bundle(p, c);
    for (int bundle = fewest; bundle <= most; bundle = bundle == most ? most + 1 : most) {
      for (const int splits : {1, 2, 4, 8}) {
        if (splits > 1 && device.major < 9) break;
        if (forced.splits != 0 ? forced.splits != splits : !may_split(p, splits, bundle)) continue;
        const double seconds = seconds_of(p, c, splits, bundle, device);
        if (seconds >= least) continue;
        least = seconds;
        best = {c.channels, c.pixels, c.threads, splits, bundle, seconds};
      }
    }
  }
  if (best.channels == 0) throw std::invalid_argument("no tile of the pointwise_planes kernel has the forced numbers");
  return best;
}

}  // namespace gable::cuda
