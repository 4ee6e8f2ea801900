// See few_outputs_cut.h.
#include "cuda/few_outputs/few_outputs_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "cuda/gemm/implicit.h"
#include "cuda/gemm/pixel_chunk.h"

namespace gable::cuda {
namespace {

constexpr int kColumns = 8;     // of a tile
constexpr int kLeastShare = 2;  // a strip has outputs for at least 1 / kLeastShare of its pixels
constexpr int kMaxSharedBytes = 100 * 1024;

int narrow(std::int64_t value) { return static_cast<int>(value); }

int element_bytes(const Conv2dProblem& p) { return narrow(size_of(p.dtype)); }

/// The smallest tile that holds the window's rows and columns.
std::optional<int> tile_of(const Conv2dProblem& p) {
  const std::int64_t column_tiles = ceil_div(p.s * p.k, kColumns);
  for (int i = 0; i < static_cast<int>(kFewOutputsTiles.size()); ++i) {
    const FewOutputsTile& tile = kFewOutputsTiles[static_cast<std::size_t>(i)];
    if (tile.window_rows >= p.r && tile.column_tiles >= column_tiles) return i;
  }
  return std::nullopt;
}

const FewOutputsTile& tile_at(int index) { return kFewOutputsTiles[static_cast<std::size_t>(index)]; }

int chunks_of(const Conv2dProblem& p) { return narrow(ceil_div(p.c * element_bytes(p), kChunkBytes)); }

/// Outputs of a row of a strip.
int outputs_of(const FewOutputsView& view, const Conv2dProblem& p, int pixels) {
  return (pixels - (narrow(p.s) - 1) * view.apart - 1) / view.across + 1;
}

/// Bias, weights of all rows and columns, and each warp's sums of a row.
std::int64_t shared_bytes_of(const Conv2dProblem& p, int tile_index) {
  constexpr std::int64_t kFloat = sizeof(float);
  const FewOutputsTile& tile = tile_at(tile_index);
  const std::int64_t columns = tile.column_tiles * kColumns;
  const std::int64_t bias = round_up(p.k, 4) * kFloat;
  const std::int64_t weights = p.r * columns * chunk_pitch(std::int64_t{chunks_of(p)});
  return bias + weights + kFewOutputsWarps * columns * few_outputs_sums_pitch(tile.pixels()) * kFloat;
}

/// The widest access that a pixel's channels are a multiple of.
int load_bytes_of(const Conv2dProblem& p) { return narrow(std::gcd(p.c * element_bytes(p), std::int64_t{16})); }

/// Time of an access of so many bytes, that of 16 being 1. By every cut of 310 layers; on 260 others the estimate then
/// errs by 17 % where accesses have 2 bytes (before 31), by 16 % where they have 4 (19).
double access_time(int bytes) { return bytes == 2 ? 1.4 : bytes == 4 ? 0.8 : 1; }

/// What a warp does for a row of pixels.
struct RowCounts {
  double steps;               // of 64 bytes of channels
  double products, loads;     // of a step
  double sums, adds, stores;  // that move to the next row; taps that a lane adds up; stores
};

RowCounts row_counts(const Conv2dProblem& p, const FewOutputsCut& cut) {
  const FewOutputsTile& tile = tile_at(cut.tile);
  const int pixels = tile.pixels();
  const bool as_they_are = p.s == 1 && tile.column_tiles == 1 && cut.parts == 1;
  const std::int64_t fours = ceil_div(ceil_div(p.k, 4), cut.parts);
  return {.steps = static_cast<double>(ceil_div(cut.chunks, cut.parts)),
          .products = 2.0 * (pixels / 16) * static_cast<double>(p.r) * tile.column_tiles,
          .loads = pixels / 8.0 * (16.0 / load_bytes_of(p)) * access_time(load_bytes_of(p)),
          .sums = tile.window_rows * tile.column_tiles * pixels / 4.0,
          .adds = as_they_are ? 0.0 : static_cast<double>(fours * (p.s * cut.parts + 3)),
          .stores = as_they_are ? 4.0 : tile.column_tiles * pixels / 4.0};
}

/// How long the cut takes. Cycles of a warp alone (k...Latency), and of a multiprocessor's four schedulers for each of
/// its warps. Fitted to every cut of 250 layers of few outputs and of few channels on an H200; on 220 others it errs by
/// 16 % (root mean square), and its cut takes 1.02 of the best one's time.
double seconds_of(const Conv2dProblem& p, const FewOutputsView& view, const FewOutputsCut& cut,
                  const cudaDeviceProp& device) {
  constexpr double kHertz = 1.755e9, kLaunch = 1.07e-6, kSharedByte = 13e-12, kWave = 970;
  constexpr double kStepLatency = 214, kProductLatency = 9.5, kLoadLatency = 40;
  constexpr double kRowLatency = 1025, kAddLatency = 76;
  constexpr double kProduct = 7.4, kLoad = 44, kRow = 165, kAdd = 18, kStore = 2, kSchedulers = 4;
  constexpr double kReadBytes = 3.9e12, kWrittenBytes = 2.75e12;  // a second
  constexpr double kOverlapOfMemory = 1.5, kOverlapOfWarps = 3;   // powers: 1 would be a sum, infinity the longer one
  constexpr int kReserved = 1024;                                 // bytes of shared memory, by the system, of a block
  const RowCounts n = row_counts(p, cut);
  const double rows = (cut.rows - 1) * view.every + narrow(p.r), outputs = cut.rows / rows;
  const int fit = narrow(static_cast<std::int64_t>(device.sharedMemPerMultiprocessor) / (cut.shared_bytes + kReserved));
  const int resident = std::clamp(fit, 1, tile_at(cut.tile).resident());
  const std::int64_t share = ceil_div(ceil_div(cut.strips, kFewOutputsWarps / cut.parts), device.multiProcessorCount);
  const auto waves = static_cast<double>(ceil_div(share, resident));
  const double warps = static_cast<double>(share) / waves * kFewOutputsWarps;
  const double latency = n.steps * (kStepLatency + kProductLatency * n.products + kLoadLatency * n.loads) +
                         outputs * (kRowLatency + kAddLatency * n.adds);
  const double issued = n.steps * (kProduct * n.products + kLoad * n.loads) + kRow + n.sums +
                        outputs * (kAdd * n.adds + kStore * n.stores);
  const double busy = warps * issued / kSchedulers;
  const double row = std::cbrt(std::pow(latency, kOverlapOfWarps) + std::pow(busy, kOverlapOfWarps));
  const double computing = waves * (kWave + rows * row) / kHertz;
  const auto read = static_cast<double>(p.x_elements() / (view.row_step * view.column_step / view.phases));
  const auto written = static_cast<double>(p.y_elements());
  const double moving = element_bytes(p) * (read / kReadBytes + written / kWrittenBytes);
  return kLaunch + kSharedByte * cut.shared_bytes +
         std::pow(std::pow(computing, kOverlapOfMemory) + std::pow(moving, kOverlapOfMemory), 1 / kOverlapOfMemory);
}

/// The cut with strips of so many rows.
FewOutputsCut cut_of(const Conv2dProblem& p, const FewOutputsView& view, int tile, int rows, int parts,
                     const cudaDeviceProp& device) {
  FewOutputsCut cut{.tile = tile, .parts = parts, .chunks = chunks_of(p)};
  cut.outputs = outputs_of(view, p, tile_at(tile).pixels());
  const int phase_rows = narrow(ceil_div(view.out_h, view.phases));
  cut.bands = narrow(ceil_div(phase_rows, rows));
  cut.rows = narrow(ceil_div(phase_rows, cut.bands));
  cut.strips_across = narrow(ceil_div(view.out_w, cut.outputs));
  cut.strips = view.images * cut.bands * view.phases * cut.strips_across;
  cut.shared_bytes = narrow(shared_bytes_of(p, tile));
  cut.seconds = seconds_of(p, view, cut, device);
  return cut;
}

}  // namespace

FewOutputsView few_outputs_view(const Conv2dProblem& p) {
  const bool one_row = p.r == 1, one_column = p.s == 1;
  FewOutputsView view{.images = narrow(p.n),
                      .h = narrow(p.h),
                      .w = narrow(p.w),
                      .out_h = narrow(p.ho),
                      .out_w = narrow(p.wo),
                      .pad_top = narrow(p.pad_top),
                      .pad_left = narrow(p.pad_left),
                      .row_step = narrow(one_row ? p.stride_h : p.dilation_h),
                      .column_step = one_column ? narrow(p.stride_w) : 1,
                      .every = one_row ? 1 : narrow(p.stride_h),
                      .across = one_column ? 1 : narrow(p.stride_w),
                      .apart = one_column ? 1 : narrow(p.dilation_w),
                      .phases = one_row ? 1 : narrow(std::min(p.dilation_h, p.ho)),
                      .top_step = narrow(p.stride_h)};
  const bool line = one_row && one_column && p.stride_h == 1 && p.stride_w == 1 && p.pad_top == 0 && p.pad_left == 0 &&
                    p.ho == p.h && p.wo == p.w;
  if (line) {
    constexpr int kWidth = 32;  // a strip of a window of one pixel
    view.images = 1;
    view.w = view.out_w = kWidth;
    view.h = view.out_h = narrow(ceil_div(p.n * p.h * p.w, kWidth));
  }
  return view;
}

FewOutputsCut choose_few_outputs(const Conv2dProblem& p, const cudaDeviceProp& device,
                                 const FewOutputsOverrides& overrides) {
  const FewOutputsView view = few_outputs_view(p);
  const int tile = tile_of(p).value();
  FewOutputsCut best{.seconds = std::numeric_limits<double>::max()};
  for (const int parts : {1, 2, kFewOutputsWarps}) {
    if (overrides.parts != 0 ? parts != overrides.parts : parts > chunks_of(p)) continue;
    for (const int rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      const int wanted = overrides.rows != 0 ? overrides.rows : rows;
      const FewOutputsCut cut = cut_of(p, view, tile, wanted, parts, device);
      if (cut.seconds < best.seconds) best = cut;
    }
  }
  return best;
}

std::string few_outputs_refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const bool tensor = p.dtype == DType::f32 ? p.math == Math::tf32 : p.math == Math::strict;
  if (!tensor) return "it multiplies f16, bf16, and f32 as tf32 (math tf32)";
  if (!p.nhwc) return "layout nchw; it takes nhwc";
  if (p.groups != 1) return std::to_string(p.groups) + " groups; it takes one";
  if (!p.pool.none()) return "a max-pool; it has none";
  constexpr std::int64_t kMaxOutputs = 16;
  const std::optional<int> tile = tile_of(p);
  if (!tile || p.k > kMaxOutputs) {
    return "filter " + std::to_string(p.r) + "x" + std::to_string(p.s) + " with " + std::to_string(p.k) +
           " output channels; it is made for few of both";
  }
  if (p.r > 1 && p.stride_h > 1 && p.dilation_h > 1) return "a stride and a dilation of rows; it takes one of them";
  if (const std::string indices = implicit_refusal(p); !indices.empty()) return indices;
  const FewOutputsView view = few_outputs_view(p);
  const int pixels = tile_at(*tile).pixels();
  if ((p.s - 1) * view.apart >= pixels / kLeastShare) {
    return "taps " + std::to_string(p.dilation_w) + " columns apart; a strip has " + std::to_string(pixels);
  }
  const std::int64_t shared = shared_bytes_of(p, *tile);
  if (shared > kMaxSharedBytes || static_cast<std::size_t>(shared) > device.sharedMemPerBlockOptin) {
    return "weights and sums of " + std::to_string(shared) + " bytes of shared memory; it takes at most " +
           std::to_string(kMaxSharedBytes);
  }
  // Offsets are computed for a strip's pixels behind the last output too.
  constexpr std::int64_t kMaxIndex = std::numeric_limits<int>::max(), kStripPixels = 32, kStripRows = 2;
  if (p.stride_w > kMaxIndex / (kStripPixels * p.c) || p.stride_h > kMaxIndex / (kStripRows * p.w * p.c)) {
    return "stride " + std::to_string(p.stride_h) + "x" + std::to_string(p.stride_w) + "; its indices have 32 bits";
  }
  return {};
}

}  // namespace gable::cuda
