// See few_channels_mma_cut.h.
#include "cuda/few_channels/few_channels_mma_cut.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gable::cuda::few_channels_mma {
namespace {

/// The variants for the problem: all except those that compute at least twice as many output channels as it has. That
/// of eight channels reads as many pixels for half of the products, so it is for no more.
std::span<const Variant> variants_for(const Conv2dProblem& p) {
  const std::int64_t k = p.group_k();
  if (k <= 8) return variants(p.dtype).first(1);
  return variants(p.dtype).subspan(1, k <= 16 ? 1 : k <= 32 ? 2 : 3);
}

std::size_t lay_out(HaloTile& t, const Variant& v) {
  t.chunk = 8 * v.tiles;
  t.by.columns = divisor(t.output.wo);
  t.shared.in_columns = (t.output.wo - 1) * t.window.stride_w + (t.window.kernel_w - 1) * t.window.dilation_w + 1;
  t.shared.pitch = t.shared.in_columns * pixel_bytes(t);
  t.shared.image = t.cut.in_rows * t.shared.pitch;
  t.line.pairs = divisor((t.shared.in_columns + t.window.pad_left % 2 + 1) / 2);
  return static_cast<std::size_t>(steps_of(t)) * (step_bytes(v.tiles) + kUnitsOfStep * 4) +
         static_cast<std::size_t>(t.cut.images) * t.shared.image;
}

double tile_cost(const HaloTile& t, const Variant& v, int threads) {
  const int warps = threads / 32;
  const int tiles = (t.cut.images * t.cut.row_pairs * t.output.wo + 8 * v.rows - 1) / (8 * v.rows);
  const double rounds = (tiles + warps - 1) / warps;
  const double tile = static_cast<double>(steps_of(t)) * v.rows * (4 + v.tiles * 6) + v.rows * v.tiles * 24;
  const double load = static_cast<double>(t.cut.images) * t.cut.in_rows * t.shared.in_columns *
                      (pair_order(t) == PairOrder::elements ? 60 : 40) / 32;
  return rounds * warps * tile + load + 2000;
}

TileChoice choose_tile(const Conv2dProblem& p, const Variant& v, const cudaDeviceProp& device) {
  HaloTile t = halo_tile(p);
  t.chunk = 8 * v.tiles;
  return choose_tile(t,
                     {.kernel = v.kernel,
                      .most_threads = v.threads,
                      .lay_out = [&v](HaloTile& tile) { return lay_out(tile, v); },
                      .tile_cost = [&v](const HaloTile& tile, int threads) { return tile_cost(tile, v, threads); }},
                     device);
}

/// Cycles of a pair of pixels that a thread loads.
double pair_cycles(const HaloTile& t) {
  constexpr double kPair = 31.7, kAccess = 7.2;
  switch (pair_order(t)) {
    case PairOrder::planes:
      return kPair + kAccess * t.extents.c;
    case PairOrder::three:
      return kPair + kAccess * 3;
    case PairOrder::whole:
      return kPair + kAccess * pixel_bytes(t) / 8;
    case PairOrder::elements:
      return kPair + kAccess * 2 * t.extents.c;
  }
  return kPair;
}

/// Of nhwc stores that are narrower than a thread's channels allow: they take the longer, the farther pixels lie apart.
/// Of ten layers of 18 to 90 output channels, f16, bf16 and tf32, within a quarter of what they take.
double narrow_store_seconds(const Choice& choice) {
  constexpr double kStoreOfPixelByte = 2.5e-14;
  const HaloTile& t = choice.tile.tile;
  const int element = static_cast<int>(size_of(choice.variant->type));
  const int widest = widest_store(2 * choice.variant->tiles, element), width = store_width(t.extents.k, widest);
  if (!t.format.nhwc || t.format.pool || width == widest) return 0;
  const double channels = static_cast<double>(t.extents.k) * t.extents.groups;
  const double stores = static_cast<double>(t.n) * t.output.ho * t.output.wo * channels / width;
  return kStoreOfPixelByte * channels * element * stores;
}

}  // namespace

Choice choose(const Conv2dProblem& p, const cudaDeviceProp& device) {
  constexpr double kClearly = 1.2;
  const std::span<const Variant> variants = variants_for(p);
  Choice best;
  for (auto v = variants.rbegin(); v != variants.rend(); ++v) {
    const TileChoice tile = choose_tile(p, *v, device);
    if (tile.threads == 0) continue;
    if (best.variant == nullptr || tile.cost * kClearly < best.tile.cost) best = {&*v, tile};
  }
  return best;
}

std::size_t least_shared_bytes(const Conv2dProblem& p) {
  HaloTile t = halo_tile(p);
  cut_rows(t, 1, 1);
  return lay_out(t, variants_for(p).front());
}

/// Cycles where nothing else is said. Fitted to the picks of 570 first layers on an H200, as few_channels' estimate; on
/// 225 others it erred by 19 % (root mean square) before narrow stores had a term, and the kernel of the least estimate
/// among all took 1.03 of the fastest.
double seconds_of(const Choice& choice) {
  constexpr double kHertz = 1.755e9, kLaunch = 1.17e-6, kStart = 3490, kDeviceBytes = 1.85e12, kOverlap = 2.7;
  constexpr double kProduct = 1.36, kConflict = 1.4, kWeights = 2.83, kOutputs = 16.2, kRaggedOutputs = 4.1;
  constexpr double kTile = 220, kStepLatency = 261, kPairLatency = 450, kWeightByte = 0.021;
  constexpr int kPlaces = 16;  // words of 8 bytes in a cycle of shared memory
  const Variant& v = *choice.variant;
  const HaloTile& t = choice.tile.tile;
  const int steps = steps_of(t), apart = std::gcd(t.window.stride_w * pixel_bytes(t) / kUnit, kPlaces);
  const double products = v.rows * v.tiles, ragged = t.extents.k % (8 * v.tiles) != 0 ? kRaggedOutputs : 0;
  const double stored = v.rows * std::max(v.tiles, 2);  // eight channels of a row take as long as sixteen
  const double task =
      steps * (products * kProduct + kConflict * v.rows * apart + kWeights * v.tiles) + stored * (kOutputs + ragged);
  const std::int64_t positions = std::int64_t{t.cut.images} * t.cut.row_pairs * t.output.wo;
  const std::int64_t tasks = ceil_div(positions, 8 * v.rows);
  const double pairs = static_cast<double>(t.cut.images) * t.cut.in_rows * static_cast<int>(t.line.pairs.value);
  const double tile = static_cast<double>(tasks) * task + pairs / 32 * pair_cycles(t) + kTile;
  const double latency = static_cast<double>(ceil_div(tasks, choice.tile.threads / 32)) * steps * kStepLatency +
                         pairs / choice.tile.threads * kPairLatency;
  const double cycles =
      kStart + kWeightByte * steps * step_bytes(v.tiles) +
      static_cast<double>(choice.tile.rounds) * std::max(static_cast<double>(choice.tile.together) * tile, latency);
  const double computing = cycles / kHertz, moving = halo_bytes(t) / kDeviceBytes;
  return kLaunch + std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap) +
         narrow_store_seconds(choice);
}

}  // namespace gable::cuda::few_channels_mma
