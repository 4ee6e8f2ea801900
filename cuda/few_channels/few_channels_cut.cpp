// See few_channels_cut.h.
#include "cuda/few_channels/few_channels_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gable::cuda::few_channels {
namespace {

/// Products that the variant's register tiles compute for two output rows of all channels, padding included. Where
/// inputs are read tap by tap and serve four channels only, shared memory takes twice as long as they do; windows of
/// few taps are bound by their stores, which six columns split.
std::int64_t computed(const Variant& v, const Conv2dProblem& p) {
  constexpr std::int64_t kFewTaps = 4;
  const std::int64_t slowdown = v.kernel_w != 0 ? 2 : v.channels > 4 ? 3 : p.r * p.s <= kFewTaps ? 7 : 4;
  return slowdown * pad_to(static_cast<int>(p.k / p.groups), v.channels) *
         pad_to(static_cast<int>(2 * p.out_w() / (p.pool.none() ? 2 : 1)), v.columns);
}

/// Returns the bytes of shared memory, and fills in pitches for the variant unless one might exceed an int: no block
/// has room for such a tile.
std::size_t lay_out(HaloTile& t, const Variant& v) {
  constexpr std::int64_t kMaxPlaced = std::numeric_limits<int>::max(), kMaxFloats = std::int64_t{1} << 50;
  const Window& window = t.window;
  const int phases = v.kernel_w == 0 ? 1 : v.stride_w;
  const std::int64_t columns = round_up(t.output.wo, v.columns);
  const std::int64_t in_columns =
      (columns - 1) * window.stride_w + std::int64_t{window.kernel_w - 1} * window.dilation_w + 1;
  const std::int64_t pitch = phases * round_up(ceil_div(in_columns, phases) + 3, 4);
  const std::int64_t plane = pitch > kMaxFloats / t.cut.in_rows ? kMaxFloats : t.cut.in_rows * pitch;
  const std::int64_t image = t.extents.c * plane;
  const std::int64_t weights = round_up(std::int64_t{t.chunk} * t.extents.c * window.kernel_h * window.kernel_w, 4);
  const std::int64_t floats = weights + 2 * (t.cut.images * image + kWindowSlack);
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (floats > kMaxPlaced) return bytes;
  t.by.columns = divisor(static_cast<int>(columns / v.columns));
  t.shared = {.in_columns = static_cast<int>(in_columns),
              .pitch = static_cast<int>(pitch),
              .plane = static_cast<int>(plane),
              .image = static_cast<int>(image)};
  const bool one_phase_rows = phases == 1 && (!t.format.nhwc || (t.extents.c == 1 && t.extents.groups == 1));
  t.line.vector = !one_phase_rows                                    ? 1
                  : t.extents.w % 4 == 0 && window.pad_left % 4 == 0 ? 4
                  : t.extents.w % 2 == 0 && window.pad_left % 2 == 0 ? 2
                                                                     : 1;
  const int accesses = (t.shared.in_columns + t.line.vector - 1) / t.line.vector * (t.format.nhwc ? t.extents.c : 1);
  t.line.lanes = accesses <= 8 ? 8 : accesses <= 16 ? 16 : 32;
  return bytes;
}

double tile_cost(const HaloTile& t, const Variant& v, int threads) {
  const int column_groups = (t.output.wo + v.columns - 1) / v.columns;
  const int tasks =
      t.cut.images * t.cut.row_pairs * column_groups * ((std::min(t.chunk, t.extents.k) + v.channels - 1) / v.channels);
  const double rounds = (tasks + threads - 1) / threads;
  const double task =
      2.0 * v.columns * v.channels * (t.extents.c * t.window.kernel_h * t.window.kernel_w * 1.1 + 8) + 200;
  const double load = static_cast<double>(t.cut.images) * t.shared.image / t.line.vector * 12;
  return rounds * (threads / 32) * task + load / 32 + 600;
}

/// What a task of a warp, one register tile a lane, asks of a multiprocessor: instructions, and cycles of shared memory
/// and of stores.
struct TaskCounts {
  double products = 0, loads = 0, loaded = 0, conflicts = 0, stores = 0, stored = 0;
};

/// Where lanes read single floats, their distances decide about conflicts of banks.
void count_loads(const HaloTile& t, const Variant& v, TaskCounts& n) {
  constexpr int kLanes = 32, kBanks = 32;
  const double rows = t.extents.c * t.window.kernel_h, taps = rows * t.window.kernel_w;
  const double weights = taps * v.channels / (v.channels % 4 == 0 ? 4 : 2);
  if (v.kernel_w == 0) {
    const double inputs = 2 * v.columns * taps;
    const int apart = std::gcd(v.columns * t.window.stride_w, kBanks);
    const int lanes = std::min(kLanes, (t.output.wo + v.columns - 1) / v.columns);
    n.loads = weights + inputs;
    n.loaded = weights + inputs * std::max(1.0, static_cast<double>(lanes) * apart / kBanks);
    n.conflicts = inputs * apart;
    return;
  }
  const int vector = v.columns % 4 == 0 ? 4 : 2, window = v.columns + (v.kernel_w - 1) / v.stride_w;
  const double inputs = 2 * v.stride_w * rows * pad_to(window, vector) / vector;
  n.loads = weights + inputs;
  n.loaded = weights + inputs * vector;
}

/// In NHWC each lane's store touches its own lines; in NCHW lanes have neighbouring pixels.
void count_stores(const HaloTile& t, const Variant& v, TaskCounts& n) {
  constexpr int kLanes = 32, kLine = 128;
  const int element = t.format.type == DType::f32 ? 4 : 2;
  const double outputs = 2.0 * v.columns * v.channels / (t.format.pool ? 4 : 1);
  if (t.format.nhwc) {
    const int run = v.channels % 8 == 0 ? 8 : v.channels % 4 == 0 ? 4 : 2;
    n.stores = t.extents.k % run == 0 ? outputs * element / std::min(16, run * element) : outputs;
    n.stored = n.stores * kLanes;
    return;
  }
  const int run = v.columns % 4 == 0 ? 4 : 2;
  const bool vectors = t.output.out_w % run == 0;
  n.stores = vectors ? outputs / run : outputs;
  n.stored = vectors ? n.stores * std::max(1, run * element * kLanes / kLine) : outputs * run * element / 2;
}

/// Instructions that load a tile's input, of a warp.
double tile_loads(const HaloTile& t) {
  const int interleaved = t.format.nhwc ? t.extents.c : 1;
  const int accesses = (t.shared.in_columns + t.line.vector - 1) / t.line.vector * interleaved;
  return static_cast<double>(t.cut.images) * t.cut.in_rows * t.extents.c / interleaved *
         pad_to(accesses, t.line.lanes) / 32;
}

}  // namespace

const Variant& choose_variant(const Conv2dProblem& p) {
  const Variant* best = nullptr;
  for (const Variant& v : variants()) {
    const bool fits = v.kernel_w == 0 || (v.kernel_w == p.s && v.stride_w == p.stride_w && p.dilation_w == 1);
    if (fits && (best == nullptr || computed(v, p) < computed(*best, p))) best = &v;
  }
  return *best;
}

/// The tile for each number of output channels a block.
TileChoice choose_chunk(const Conv2dProblem& p, const Variant& v, const cudaDeviceProp& device) {
  const TileKernel kernel{.kernel = v.kernel,
                          .most_threads = v.threads,
                          .lay_out = [&v](HaloTile& t) { return lay_out(t, v); },
                          .tile_cost = [&v](const HaloTile& t, int threads) { return tile_cost(t, v, threads); }};
  TileChoice best;
  HaloTile t = halo_tile(p);
  for (int chunk = pad_to(t.extents.k, v.channels);; chunk = pad_to((chunk + 1) / 2, v.channels)) {
    t.chunk = chunk;
    const TileChoice choice = choose_tile(t, kernel, device);
    if (choice.threads > 0 && (best.threads == 0 || choice.cost < best.cost)) best = choice;
    if (chunk == v.channels) return best;
  }
}

std::size_t least_shared_bytes(const Conv2dProblem& p, const Variant& v) {
  HaloTile t = halo_tile(p);
  t.chunk = v.channels;
  cut_rows(t, 1, 1);
  return lay_out(t, v);
}

/// Cycles where nothing else is said. Fitted to the picks of 1346 first layers on an H200 (1 to 8 channels, windows of
/// 1 to 16, strides of 1 to 16, f32, f16 and bf16, both layouts); of 574 others the kernel of the least estimate among
/// all takes 1.02 of the fastest.
double seconds_of(const TileChoice& choice, const Variant& v) {
  constexpr double kHertz = 1.755e9, kStart = 4910, kDeviceBytes = 3.6e12, kOverlap = 1.8;
  constexpr double kProduct = 0.22, kLoad = 1.8, kLoaded = 0.75, kConflict = 0.17, kStore = 5, kStored = 2.2;
  constexpr double kTileLoad = 32, kTileLoad16 = 20;  // the latter: more where elements are converted
  constexpr double kLatency = 1.7, kTileLatency = 1380, kWeight = 0.098;
  const HaloTile& t = choice.tile;
  const bool half = t.format.type != DType::f32;
  TaskCounts n{.products = 2.0 * v.columns * v.channels * t.extents.c * t.window.kernel_h * t.window.kernel_w};
  count_loads(t, v, n);
  count_stores(t, v, n);
  const double task = std::max(kProduct * n.products + kLoad * n.loads + kStore * n.stores,
                               kLoaded * n.loaded + kConflict * n.conflicts) +
                      kStored * n.stored;
  const std::int64_t column_groups = (t.output.wo + v.columns - 1) / v.columns;
  const std::int64_t tasks =
      t.cut.images * t.cut.row_pairs * column_groups * ceil_div(std::min(t.chunk, t.extents.k), v.channels);
  const double tile =
      static_cast<double>(ceil_div(tasks, 32)) * task + tile_loads(t) * (kTileLoad + (half ? kTileLoad16 : 0));
  const double latency =
      static_cast<double>(ceil_div(tasks, choice.threads)) * kLatency * (n.products + 2 * n.loads) + kTileLatency;
  const double weights = 4.0 * t.chunk * t.extents.c * t.window.kernel_h * t.window.kernel_w;
  const double cycles =
      kStart + kWeight * weights +
      static_cast<double>(choice.rounds) * std::max(static_cast<double>(choice.together) * tile, latency);
  const double computing = cycles / kHertz, moving = halo_bytes(t) / kDeviceBytes;
  return std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap);
}

}  // namespace gable::cuda::few_channels
