// See few_channels_mma_cut.h.
#include "cuda/few_channels/few_channels_mma_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gable::cuda::few_channels_mma {
namespace {

/// The variants for the problem: all except those that compute at least twice as many output channels as it has. That
/// of eight channels reads as many pixels for half of the products, so it is for no more.
std::span<const Variant> variants_for(const Conv2dProblem& p) {
  const std::int64_t k = p.group_k();
  const std::span<const Variant> all = variants(p.dtype, p.group_c() > 8);
  if (k <= 8) return all.first(1);
  return all.subspan(1, std::min<std::size_t>(all.size() - 1, k <= 16 ? 1 : k <= 32 ? 2 : 3));
}

/// Bytes from phase to phase of a row of so many wide pixels: neighbouring taps of a quad's units are then apart by
/// half of the banks.
std::int64_t phase_pitch(const HaloTile& t, std::int64_t in_columns) {
  constexpr int kBanks = 128;
  const std::int64_t bytes = ceil_div(in_columns, t.window.stride_w) * pixel_bytes(t);
  return t.window.stride_w == 1 ? bytes : (bytes + kBanks / 2 - 1) / kBanks * kBanks + kBanks / 2;
}

/// Returns the bytes of shared memory, and fills in pitches and divisors unless one might exceed an int: no block has
/// room for such a tile.
std::size_t lay_out(HaloTile& t, const Variant& v) {
  constexpr std::int64_t kMaxPlaced = std::numeric_limits<int>::max(), kMaxBytes = std::int64_t{1} << 58;
  const Window& window = t.window;
  const std::int64_t in_columns =
      std::int64_t{t.output.wo - 1} * window.stride_w + std::int64_t{window.kernel_w - 1} * window.dilation_w + 1;
  const std::int64_t plane = is_wide(t) ? phase_pitch(t, in_columns) : 0;
  const std::int64_t pitch = is_wide(t) ? window.stride_w * plane : in_columns * pixel_bytes(t);
  const std::int64_t image = pitch > kMaxBytes / t.cut.in_rows ? kMaxBytes : t.cut.in_rows * pitch;
  const std::int64_t pixels = t.cut.images * image;
  const std::size_t bytes = static_cast<std::size_t>(steps_of(t)) * step_bytes(v.tiles) +
                            static_cast<std::size_t>(unit_groups_of(t)) * kUnitsOfGroup * 4 +
                            static_cast<std::size_t>(pixels);
  if (pixels > kMaxPlaced) return bytes;
  t.chunk = 8 * v.tiles;
  t.by.columns = divisor(t.output.wo);
  t.shared = {.in_columns = static_cast<int>(in_columns),
              .pitch = static_cast<int>(pitch),
              .plane = static_cast<int>(plane),
              .image = static_cast<int>(image)};
  if (is_wide(t)) {
    const int units = t.shared.in_columns * units_of_pixel(t);
    t.line.units = divisor(units);
    t.line.lanes = units <= 8 ? 8 : units <= 16 ? 16 : 32;
    t.line.pixel_units = divisor(units_of_pixel(t));
    t.line.stride = divisor(window.stride_w);
  } else {
    t.line.pairs = divisor((t.shared.in_columns + window.pad_left % 2 + 1) / 2);
  }
  return bytes;
}

/// Issue slots of a thread's loads of a row's columns.
double load_slots(const HaloTile& t) {
  if (is_wide(t)) return t.shared.in_columns * units_of_pixel(t) * (25 + 3.0 * 16 / unit_access(t));
  return t.shared.in_columns * (pair_order(t) == PairOrder::elements ? 60.0 : 40.0);
}

double tile_cost(const HaloTile& t, const Variant& v, int threads) {
  const int warps = threads / 32;
  const int tiles = (t.cut.images * t.cut.row_pairs * t.output.wo + 8 * v.rows - 1) / (8 * v.rows);
  const double rounds = (tiles + warps - 1) / warps;
  const double tile = static_cast<double>(steps_of(t)) * v.rows * (4 + v.tiles * 6) + v.rows * v.tiles * 24;
  const double load = static_cast<double>(t.cut.images) * t.cut.in_rows * load_slots(t) / 32;
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

/// Accesses that load a pair of narrow pixels.
double pair_accesses(const HaloTile& t) {
  switch (pair_order(t)) {
    case PairOrder::planes:
      return t.extents.c;
    case PairOrder::three:
      return 3;
    case PairOrder::whole:
      return pixel_bytes(t) / 8;
    case PairOrder::elements:
      return 2 * t.extents.c;
  }
  return 0;
}

/// Cycles where nothing else is said, of a multiprocessor unless they are a latency.
struct Costs {
  double start, device_bytes, overlap;  // overlap: a power; 1 would be the sum of computing and moving
  double product, conflict, weights, output, ragged_output;
  double step_latency, load_latency, weight_byte;
  double load, access;  // of a thread that loads a pair or a unit, and of each of its accesses
};
/// Fitted to the picks of 570 first layers on an H200, as few_channels' estimate; on 225 others it erred by 19 % (root
/// mean square) before narrow stores had a term, and the kernel of the least estimate among all took 1.03 of the
/// fastest.
constexpr Costs kNarrowCosts{.start = 3490,
                             .device_bytes = 1.85e12,
                             .overlap = 2.7,
                             .product = 1.36,
                             .conflict = 1.4,
                             .weights = 2.83,
                             .output = 16.2,
                             .ragged_output = 4.1,
                             .step_latency = 261,
                             .load_latency = 450,
                             .weight_byte = 0.021,
                             .load = 31.7,
                             .access = 7.2};
/// Of wide pixels: fitted to 80 layers of f16 and 44 of tf32, of 9 to 32 channels; on 59 and 23 others they err by 12
/// and 13 %.
constexpr Costs kWideCosts16{.start = 5127,
                             .device_bytes = 2.37e12,
                             .overlap = 2.84,
                             .product = 2.28,
                             .conflict = 0.53,
                             .weights = 0,
                             .output = 7.8,
                             .ragged_output = 1.7,
                             .step_latency = 142,
                             .load_latency = 279,
                             .weight_byte = 0.0082,
                             .load = 36.4,
                             .access = 9.4};
constexpr Costs kWideCosts32{.start = 4573,
                             .device_bytes = 5e12,
                             .overlap = 1.2,
                             .product = 1.72,
                             .conflict = 0.87,
                             .weights = 2.36,
                             .output = 0,
                             .ragged_output = 7.2,
                             .step_latency = 104,
                             .load_latency = 705,
                             .weight_byte = 0.034,
                             .load = 33.4,
                             .access = 9.9};

constexpr const Costs& costs_of(const HaloTile& t) {
  return !is_wide(t) ? kNarrowCosts : t.format.type == DType::f32 ? kWideCosts32 : kWideCosts16;
}

/// Of a thread's load: a unit of wide pixels, or a pair of narrow ones.
double load_cycles(const HaloTile& t) {
  const Costs& costs = costs_of(t);
  return costs.load + costs.access * (is_wide(t) ? 16.0 / unit_access(t) : pair_accesses(t));
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

double seconds_of(const Choice& choice) {
  constexpr double kHertz = 1.755e9, kLaunch = 1.17e-6, kTile = 220;
  constexpr int kPlaces = 16;  // words of 8 bytes in a cycle of shared memory
  const Costs& costs = costs_of(choice.tile.tile);
  const Variant& v = *choice.variant;
  const HaloTile& t = choice.tile.tile;
  const int steps = steps_of(t), apart = is_wide(t) ? 4 : std::gcd(t.window.stride_w * pixel_bytes(t) / 8, kPlaces);
  const double products = v.rows * v.tiles, ragged = t.extents.k % (8 * v.tiles) != 0 ? costs.ragged_output : 0;
  const double stored = v.rows * std::max(v.tiles, 2);  // eight channels of a row take as long as sixteen
  const double task = steps * (products * costs.product + costs.conflict * v.rows * apart + costs.weights * v.tiles) +
                      stored * (costs.output + ragged);
  const std::int64_t positions = std::int64_t{t.cut.images} * t.cut.row_pairs * t.output.wo;
  const std::int64_t tasks = ceil_div(positions, 8 * v.rows);
  const double lines = static_cast<double>(t.cut.images) * t.cut.in_rows;
  const double loads = lines * (is_wide(t) ? t.line.units.value : t.line.pairs.value);  // of all threads
  const double tile = static_cast<double>(tasks) * task + loads / 32 * load_cycles(t) + kTile;
  const double latency = static_cast<double>(ceil_div(tasks, choice.tile.threads / 32)) * steps * costs.step_latency +
                         loads / choice.tile.threads * costs.load_latency;
  const double cycles =
      costs.start + costs.weight_byte * steps * step_bytes(v.tiles) +
      static_cast<double>(choice.tile.rounds) * std::max(static_cast<double>(choice.tile.together) * tile, latency);
  const double computing = cycles / kHertz, moving = halo_bytes(t) / costs.device_bytes;
  return kLaunch + std::pow(std::pow(computing, costs.overlap) + std::pow(moving, costs.overlap), 1 / costs.overlap) +
         narrow_store_seconds(choice);
}

}  // namespace gable::cuda::few_channels_mma
