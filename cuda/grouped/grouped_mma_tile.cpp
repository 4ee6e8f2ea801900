// See grouped_mma_tile.h.
#include "cuda/grouped/grouped_mma_tile.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace gable::cuda {
namespace {

constexpr int kVectorsOfStep = kMmaStepBytes / 16;
constexpr int kVectorBytes = 16, kWarps = 8, kMaxWarpsOfSlab = 4;
constexpr int kProductPixels = 16;

int as_int(std::int64_t value) { return static_cast<int>(value); }

/// Vectors from the first input channel of `outputs` output channels to their last one, at most over all starts.
int vectors_of(const Conv2dProblem& p, const MmaChannels& c, std::int64_t outputs) {
  std::int64_t most = 0;
  for (std::int64_t first = 0; first < p.k; first += outputs) {
    const std::int64_t last_group = (std::min(first + outputs, p.k) - 1) / p.group_k();
    most = std::max(most, (last_group + 1) * p.group_c() - c.first_input(as_int(first)));
  }
  return as_int(ceil_div(most, c.vector));
}

/// Vectors from a slab's first input channel to the end of its warps' last steps.
int slab_vectors_of(const Conv2dProblem& p, const MmaChannels& c) {
  const int part = c.halves ? kMmaOutputs / 2 : kMmaOutputs, slab = c.warps * kMmaOutputs, k = as_int(p.k);
  int most = 0;
  for (int first = 0; first < k; first += part) {
    const int skipped = c.first_input(first) - c.first_input(first / slab * slab);
    most = std::max(most, skipped / c.vector + c.steps * kVectorsOfStep);
  }
  return most;
}

MmaChannels channels_of(const Conv2dProblem& p) {
  MmaChannels c;
  c.group_c = as_int(p.group_c());
  c.group_k = as_int(p.group_k());
  c.vector = kVectorBytes / as_int(static_cast<std::int64_t>(size_of(p.dtype)));
  const int whole = as_int(ceil_div(vectors_of(p, c, kMmaOutputs), kVectorsOfStep));
  const int half = as_int(ceil_div(vectors_of(p, c, kMmaOutputs / 2), kVectorsOfStep));
  c.halves = p.dtype == DType::f32 && half < whole;
  c.steps = c.halves ? half : whole;
  const int all = as_int(ceil_div(p.k, kMmaOutputs));
  c.slabs = as_int(ceil_div(all, kMaxWarpsOfSlab));
  c.warps = as_int(ceil_div(all, c.slabs));
  c.slab_vectors = slab_vectors_of(p, c);
  return c;
}

MmaTile tile_of(const Conv2dProblem& p, int rows, int columns, int images) {
  MmaTile t{.rows = rows, .columns = columns, .images = images};
  t.in_rows = as_int((rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1);
  t.in_columns = as_int((columns - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1);
  t.tiles_x = as_int(ceil_div(p.wo, columns));
  t.tiles_y = as_int(ceil_div(p.ho, rows));
  t.tiles_n = as_int(ceil_div(p.n, images));
  return t;
}

/// Bytes that a thread's copy to shared memory moves.
int copy_bytes_of(const Conv2dProblem& p) {
  return as_int(std::gcd(p.c * static_cast<std::int64_t>(size_of(p.dtype)), std::int64_t{kVectorBytes}));
}

MmaCut cut_of(const Conv2dProblem& p, const MmaChannels& channels, const MmaTile& tile) {
  MmaCut c{.channels = channels, .tile = tile};
  const int products = as_int(ceil_div(tile.pixels(), kProductPixels));
  c.pixel_warps = std::clamp(products / 2, 1, kWarps / channels.warps);
  // A pixel's channels are copied by as many threads, 4 to 16 bytes each.
  const int copies = channels.slab_vectors * kVectorBytes / copy_bytes_of(p);
  c.pixel_warps = std::max(c.pixel_warps, as_int(ceil_div(copies, 32 * channels.warps)));
  c.products = ceil_div(products, c.pixel_warps) > 2 ? 4 : 2;
  const int padding = channels.slab_vectors % 2 == 0 ? 1 : 0;
  c.pixel_bytes = (channels.slab_vectors + padding) * kVectorBytes;
  c.weight_bytes = as_int(p.r * p.s) * channels.steps * channels.warps * 32 * kVectorBytes;
  c.input_bytes = tile.images * tile.in_rows * tile.in_columns * c.pixel_bytes;
  return c;
}

/// Cycles of the busiest multiprocessor or of memory, whichever are more. A block takes at least the latency of a
/// warp's steps and copies, one after the other. The constants are fitted to half of 375 layers on an H200. The other
/// half takes 1.0 times the estimate (standard deviation of the logarithm 0.18; without latencies 1.2 and 0.32).
double estimate(const Conv2dProblem& p, const MmaCut& c, int multiprocessors, int shared_bytes) {
  constexpr double kStart = 4620;        // launch, and the first tile's load and store
  constexpr double kLoadBytes = 44;      // a cycle, from L2 to one multiprocessor
  constexpr double kSharedBytes = 63;    // a cycle, of 128
  constexpr double kDeviceBytes = 1780;  // a cycle, of device memory
  constexpr double kWarp = 258;          // of each warp of a tile: addresses, epilogue
  constexpr double kProduct = 8;
  constexpr double kCopy = 25;          // of a warp's copy instruction, while other warps work
  constexpr double kCopyLatency = 154;  // of the same, one after another
  constexpr double kStepLatency = 196;  // of a step, one after another
  constexpr int kSchedulers = 4, kReserved = 1024, kMaxBlocks = 3;
  constexpr int kFragment = 512;  // bytes of shared memory that one ldmatrix of four reads
  const int resident = std::clamp(shared_bytes / (c.shared_bytes() + kReserved), 1, kMaxBlocks);
  const int warps = c.channels.warps * c.pixel_warps, halves = c.channels.halves ? 2 : 1;
  const std::int64_t rounds =
      ceil_div(ceil_div(c.tile.pixels(), kProductPixels), std::int64_t{c.pixel_warps} * c.products);
  const auto steps = static_cast<double>(rounds * p.r * p.s * c.channels.steps);  // of a warp
  const double products = steps * c.products * 2 * kProduct * warps / kSchedulers;
  const int conflicts = p.stride_w % 2 == 0 ? 2 : 1;  // every second pixel lies in the same banks
  const double reads = steps * (c.products * halves * conflicts + 1) * kFragment * warps / kSharedBytes;
  const double copies = static_cast<double>(c.input_bytes) / c.pixel_bytes * c.channels.slab_vectors * kVectorBytes /
                        copy_bytes_of(p) / 32;  // instructions of all warps
  const double work = std::max(products, reads) + kCopy * copies, load = c.shared_bytes() / kLoadBytes;
  const double latency = kStepLatency * steps + kCopyLatency * copies / warps;
  const auto blocks = static_cast<double>(
      ceil_div(std::int64_t{c.tile.tiles_x} * c.tile.tiles_y * c.tile.tiles_n * c.channels.slabs, multiprocessors));
  const double bytes = static_cast<double>(p.x_elements() + p.y_elements()) * static_cast<double>(size_of(p.dtype));
  // Slabs read parts of a pixel at different times: where the L2 does not keep the tensors until then, all takes
  // longer.
  constexpr double kSlabs = 1.25, kKeptBytes = 30e6;
  const double factor = c.channels.slabs > 1 && bytes > kKeptBytes ? kSlabs : 1;
  const double each = std::max(work + kWarp * warps + load / resident, latency / resident);
  return kStart + std::max(work, latency) + factor * std::max((blocks - 1) * each, bytes / kDeviceBytes);
}

}  // namespace

std::optional<MmaCut> find_mma_cut(const Conv2dProblem& p, int multiprocessors, int shared_bytes) {
  constexpr std::array<std::int64_t, 7> kColumns{8, 14, 16, 28, 32, 56, 64};
  constexpr std::array<std::int64_t, 8> kRows{1, 2, 4, 7, 8, 14, 16, 28};
  constexpr std::array<std::int64_t, 6> kImages{1, 2, 3, 4, 6, 8};
  const MmaChannels channels = channels_of(p);
  std::optional<MmaCut> best;
  const auto consider = [&](std::int64_t rows, std::int64_t columns, std::int64_t images) {
    MmaCut cut = cut_of(p, channels, tile_of(p, as_int(rows), as_int(columns), as_int(images)));
    if (cut.shared_bytes() > shared_bytes || cut.threads() > 32 * kWarps) return;
    cut.cycles = estimate(p, cut, multiprocessors, shared_bytes);
    if (!best || cut.cycles < best->cycles) best = cut;
  };
  for (const std::int64_t columns : kColumns) {
    for (const std::int64_t rows : kRows) {
      consider(std::min(rows, p.ho), std::min(columns, p.wo), 1);
    }
  }
  for (const std::int64_t rows : kRows) consider(std::min(rows, p.ho), p.wo, 1);
  for (const std::int64_t images : kImages) {
    if (images <= p.n) consider(p.ho, p.wo, images);
  }
  return best;
}

}  // namespace gable::cuda
