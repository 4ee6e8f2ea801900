// See mma_choice.h.
#include "cuda/gemm/mma_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "cuda/common/clusters.h"

namespace gable::cuda {
namespace {

/// Cycles, where nothing else is said: see seconds_of().
struct MmaCosts {
  double launch;           // seconds
  double memory_bytes;     // of device memory in a second
  double run_bytes;        // the same where pixels are copied as one run of bytes
  double output;           // in the epilogue
  double narrow_store;     // of 16 bytes of outputs, for each store that they take
  double piece;            // of a pixel that is copied in pieces, of all blocks
  double piece_of_thread;  // the same in one thread
};
// With seconds_of() fitted to every tile of 844 layers (of networks and random) beside the other kernels' times, so
// that the kernel of the least time is picked: those picks take 1.030 of the best one's time (before 1.035), those of
// 264 others 1.021 (1.022).
constexpr MmaCosts kCosts16{.launch = 1.018e-6,
                            .memory_bytes = 4.04e12,
                            .run_bytes = 4.96e12,
                            .output = 0.202,
                            .narrow_store = 0.138,
                            .piece = 0.0667,
                            .piece_of_thread = 30.5};
constexpr MmaCosts kCosts32{.launch = 1.037e-6,
                            .memory_bytes = 4.74e12,
                            .run_bytes = 4.5e12,
                            .output = 0.183,
                            .narrow_store = 0.0385,
                            .piece = 0.101,
                            .piece_of_thread = 47};

/// Cycles of a multiprocessor to load a step of a block: of its own, of a row and of a column.
struct LoadCosts {
  double step, row, column;
};
constexpr LoadCosts kOneTap{.step = 0, .row = 2.93, .column = 3.21};
constexpr LoadCosts kWindow{.step = 0, .row = 3.7, .column = 2.88};
/// Of windows whose pixels have less than a step's 64 bytes, in whole 16 bytes: a step has several taps.
constexpr LoadCosts kSeveralTaps{.step = 204, .row = 4.42, .column = 0.946};

const LoadCosts& load_costs(const ImplicitGemm& g, int element, bool in_pieces) {
  if (g.taps == 1) return kOneTap;
  return g.padded_c * element < 64 && !in_pieces ? kSeveralTaps : kWindow;
}

/// Splits that no cluster shares are added up by a second kernel: its launch in seconds, its bytes a second. GPUs
/// without clusters were not measured.
constexpr double kSumLaunch = 4e-6, kSumBytes = 2e12;

/// Pieces that a step's pixels are copied in where their channels are no whole 16 bytes: 4 vectors a row.
double narrow_pieces(const Conv2dProblem& p, int rows) {
  constexpr double kOfSingles = 11.6;  // of a vector of single 16-bit elements, which are shifted in registers
  const std::int64_t element = static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t copy =
      std::min<std::int64_t>(16, std::gcd(std::gcd(p.c, p.group_c()), std::int64_t{16}) * element);
  if (copy == 16) return 0;
  return rows * 4 * (copy < 4 ? kOfSingles : 16.0 / static_cast<double>(copy));
}

/// Launch, then device memory beside the busiest multiprocessor. Its blocks run some at a time. A step of theirs takes
/// as long as the latency of one block's, or as what all compute, load and copy; then they store.
double seconds_of(const Conv2dProblem& p, const ImplicitGemm& g, const MmaCandidate& c, int splits, bool cluster,
                  const cudaDeviceProp& device) {
  constexpr double kHertz = 1.755e9;
  constexpr double kRunBytes = 60;               // in a cycle, of pixels that are one run of bytes (whole_pixels.cu)
  constexpr double kStep = 252, kRunStep = 190;  // latency of a step
  constexpr double kStepOfOutput = 15.5;         // of each output of a thread in it
  constexpr double kEpilogue = 420, kStoreOfThread = 5.31;
  constexpr double kOverlap = 1.41;  // of computing and moving: 1 would be their sum, infinity the longer one
  constexpr double kBlock = 1126;    // the least from one block of a multiprocessor to the next
  // To add up a cluster's sums: of a wave, and of each output of a block.
  constexpr double kExchange = 1200, kExchangeOfOutput = 0.12;
  const MmaCosts& costs = p.dtype == DType::f32 ? kCosts32 : kCosts16;
  const int element = static_cast<int>(size_of(p.dtype));
  const double fma = p.dtype == DType::f32 ? 512 : 1024;
  const double outputs = c.rows * c.columns, outputs_of_thread = outputs / c.threads();
  const std::int64_t tiles = ceil_div(g.rows, c.rows) * ceil_div(g.columns, c.columns) * g.groups;
  const bool exchanges = splits > 1 && cluster;
  const int working =
      exchanges ? splits * clusters_at_once(device.multiProcessorCount, splits) : device.multiProcessorCount;
  const std::int64_t share = ceil_div(tiles * splits, working);  // of a multiprocessor
  const auto waves = static_cast<double>(ceil_div(share, c.residents));
  const double at_once = static_cast<double>(share) / waves;
  const auto steps = static_cast<double>(ceil_div(ceil_div(std::int64_t{g.depth} * element, 64), splits));
  const bool run = splits == 1 && takes_whole_pixels(p, g, c.rows, c.columns, device);
  const double pieces = run ? 0 : narrow_pieces(p, c.rows);
  const double products = 64.0 / element * outputs / (fma * c.rate);
  const LoadCosts& load = load_costs(g, element, pieces > 0);
  const double loads =
      run ? 64.0 * (c.rows + c.columns) / kRunBytes : load.step + load.row * c.rows + load.column * c.columns;
  const double busy = at_once * (std::max(products, loads) + costs.piece * pieces);
  const double latency =
      (run ? kRunStep : kStep) + kStepOfOutput * outputs_of_thread + costs.piece_of_thread * pieces / c.threads();
  // A tile with all channels stores them as one line.
  const int store = std::gcd(g.columns * element, 16);
  const double stores = store == 16 || (g.groups == 1 && g.columns <= c.columns && !g.pooled) ? 1 : 16.0 / store;
  const double narrow = stores > 1 ? costs.narrow_store * element * stores / 16 / (g.pooled ? 4 : 1) : 0;
  const double epilogue =
      kEpilogue + at_once * outputs * (costs.output + narrow) + kStoreOfThread * outputs_of_thread * stores;
  const double exchange = exchanges ? kExchange + at_once * outputs * kExchangeOfOutput : 0;
  double cycles = waves * (steps * std::max(latency, busy) + epilogue + exchange);
  if (splits == 1 && share > 1) cycles = std::max(cycles, kBlock * static_cast<double>(share));
  const auto elements =
      static_cast<double>(p.x_elements() + p.y_elements() + std::int64_t{g.columns} * g.groups * g.depth);
  const double computing = cycles / kHertz, moving = elements * element / (run ? costs.run_bytes : costs.memory_bytes);
  double seconds = costs.launch + std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap);
  if (splits > 1 && !cluster) {
    seconds += kSumLaunch + 4.0 * g.rows * g.groups * g.padded_k * (splits + 1) / kSumBytes;
  }
  return seconds;
}

}  // namespace

bool takes_whole_pixels(const Conv2dProblem& p, const ImplicitGemm& g, int rows, int columns,
                        const cudaDeviceProp& device) {
  constexpr std::int64_t kMaxBytes = 512;  // of a pixel
  // Smaller ones take longer, since products wait for the whole depth: bytes of both tensors, and of a pixel. By the
  // best tiles of 110 layers of 5 to 252 channels on an H200.
  constexpr std::int64_t kFewBytes = 2'000'000, kFewBytes32 = 6'000'000, kDeepPixel = 200;
  const std::int64_t element = static_cast<std::int64_t>(size_of(p.dtype)), bytes = p.c * element;
  if (!g.line || g.groups != 1 || bytes % 16 == 0 || bytes > kMaxBytes) return false;
  const int size = static_cast<int>(element);
  const int shared = columns * static_cast<int>(sizeof(float)) + pixel_run_bytes(rows, g.c, size) +
                     columns * column_pitch_bytes(g.padded_c, size);
  if (static_cast<std::size_t>(shared) > device.sharedMemPerBlockOptin) return false;
  const std::int64_t moved = (p.x_elements() + p.y_elements()) * element;
  return p.dtype == DType::f32 ? moved > kFewBytes32 : moved > kFewBytes || bytes > kDeepPixel;
}

MmaChoice choose_mma(const Conv2dProblem& problem, const ImplicitGemm& gemm, const cudaDeviceProp& device,
                     const MmaChoice& forced) {
  const bool cluster = device.major >= 9 && forced.cluster;
  const int stage_depth = 64 / static_cast<int>(size_of(problem.dtype));
  MmaChoice best;
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < static_cast<int>(std::size(kMmaCandidates)); ++i) {
    const MmaCandidate& c = kMmaCandidates[i];
    if ((forced.rows != 0 && forced.rows != c.rows) || (forced.columns != 0 && forced.columns != c.columns)) continue;
    for (const int splits : {1, 2, 4, 8}) {
      if (forced.splits != 0 ? forced.splits != splits : gemm.depth < 2 * splits * stage_depth && splits > 1) continue;
      const double seconds = seconds_of(problem, gemm, c, splits, cluster, device);
      if (seconds >= least) continue;
      least = seconds;
      best = {c.rows, c.columns, splits, cluster, seconds, i};
    }
  }
  if (best.candidate < 0) throw std::invalid_argument("no tile of the implicit_gemm kernel has the forced numbers");
  return best;
}

}  // namespace gable::cuda
