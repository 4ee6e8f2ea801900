// See halo_tile.h.
#include "cuda/common/halo_tile.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/common/check.h"

namespace gable::cuda {
namespace {

constexpr std::int64_t kMaxBlocks = 65535;  // of a grid's second and third dimension
constexpr std::int64_t kMaxElements = 0x7fffffff;

constexpr int kMaxImages = 16;
constexpr int kEnoughWarps = 14;  // on a multiprocessor, to hide latency
constexpr int kFewestThreads = 64, kThreadStep = 32;

/// Blocks that a multiprocessor holds of a kernel without shared memory, for each number of threads. CUDA is asked once
/// in a process, since a choice among kernels estimates several.
std::vector<int> residents_of(const TileKernel& k) {
  static std::mutex mutex;
  static std::map<std::tuple<void (*)(HaloTile), int, int>, std::vector<int>> known;  // by kernel, threads, device
  int device = 0;
  GABLE_CUDA_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  std::vector<int>& by_threads = known[{k.kernel, k.most_threads, device}];
  if (!by_threads.empty()) return by_threads;
  std::vector<int> asked;
  for (int threads = kFewestThreads; threads <= k.most_threads; threads += kThreadStep) {
    int resident = 0;
    GABLE_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, reinterpret_cast<const void*>(k.kernel), threads, 0));
    asked.push_back(resident);
  }
  return by_threads = std::move(asked);
}

/// Blocks of a kernel that a multiprocessor holds.
class Residents {
 public:
  Residents(const TileKernel& k, const cudaDeviceProp& device) : device_(device), by_threads_(residents_of(k)) {}

  int of(int threads, std::size_t shared_bytes) const {
    constexpr std::size_t kGranularity = 128;
    const std::size_t bytes =
        (shared_bytes + kGranularity - 1) / kGranularity * kGranularity + device_.reservedSharedMemPerBlock;
    return std::min(by_threads_[static_cast<std::size_t>((threads - kFewestThreads) / kThreadStep)],
                    static_cast<int>(device_.sharedMemPerMultiprocessor / bytes));
  }

 private:
  const cudaDeviceProp& device_;
  std::vector<int> by_threads_;
};

/// Chooses the threads of a block for a tile that is cut.
void consider(TileChoice& best, HaloTile t, const TileKernel& k, const Residents& residents,
              const cudaDeviceProp& device) {
  const std::size_t shared_bytes = k.lay_out(t);
  if (shared_bytes > device.sharedMemPerBlockOptin) return;
  const std::int64_t parts = ceil_div(t.extents.k, t.chunk) * t.extents.groups;
  for (int threads = kFewestThreads; threads <= k.most_threads; threads += kThreadStep) {
    const int resident = residents.of(threads, shared_bytes);
    if (resident == 0) continue;
    const std::int64_t places = std::int64_t{resident} * device.multiProcessorCount;
    const std::int64_t blocks = std::min<std::int64_t>(t.cut.tiles, std::max<std::int64_t>(1, places / parts));
    const std::int64_t together =
        std::min<std::int64_t>(resident, ceil_div(parts * blocks, device.multiProcessorCount));
    const std::int64_t rounds = ceil_div(t.cut.tiles, blocks) * ceil_div(parts * blocks, places);
    const double starved =
        std::max(1.0, static_cast<double>(kEnoughWarps) / static_cast<double>(together * threads / 32));
    const double cost = static_cast<double>(rounds * together) * k.tile_cost(t, threads) * starved;
    if (best.threads == 0 || cost < best.cost) {
      best = {t, threads, static_cast<int>(blocks), shared_bytes, cost, rounds, together};
    }
  }
}

bool pools(const Conv2dProblem& p) { return p.pool.is_2x2(); }

}  // namespace

std::string halo_tile_refusal(const Conv2dProblem& p, std::int64_t most_channels) {
  if (p.c / p.groups > most_channels) {
    return std::to_string(p.c / p.groups) + " input channels a group; it takes at most " +
           std::to_string(most_channels);
  }
  if (!p.pool.none() && !pools(p)) {
    return "max-pool " + std::to_string(p.pool.h) + "x" + std::to_string(p.pool.w) + " with stride " +
           std::to_string(p.pool.stride_h) + "x" + std::to_string(p.pool.stride_w) + "; it fuses 2x2 with stride 2";
  }
  if (std::max({p.groups, p.k / p.groups}) > kMaxBlocks || p.n * p.ho > kMaxElements) {
    return std::to_string(p.groups) + " groups of " + std::to_string(p.k / p.groups) + " output channels, " +
           std::to_string(p.n * p.ho) + " rows; it takes at most 65535 of the former and 2^31 - 1 rows";
  }
  const std::int64_t largest = std::max({p.c * p.h * p.w, p.k * p.ho * p.wo, p.k * p.r * p.s * most_channels});
  if (largest > kMaxElements) {
    return std::to_string(largest) + " elements an image or of weights; it indexes less than 2^31";
  }
  return "";
}

HaloTile halo_tile(const Conv2dProblem& p) {
  HaloTile t{};
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  t.n = p.n;
  t.extents = {.c = narrow(p.c / p.groups),
               .h = narrow(p.h),
               .w = narrow(p.w),
               .k = narrow(p.k / p.groups),
               .groups = narrow(p.groups)};
  t.window = window_of(p);
  const int out_h = narrow(p.out_h()), out_w = narrow(p.out_w()), side = pools(p) ? 2 : 1;
  t.output = {.ho = side * out_h, .wo = side * out_w, .out_h = out_h, .out_w = out_w};
  t.format = {.nhwc = p.nhwc, .pool = pools(p), .type = p.dtype, .activation = p.activation};
  return t;
}

void cut_rows(HaloTile& t, int images, int row_pairs) {
  const std::int64_t in_rows = (2 * std::int64_t{row_pairs} - 1) * t.window.stride_h +
                               std::int64_t{t.window.kernel_h - 1} * t.window.dilation_h + 1;
  const int bands = ((t.output.ho + 1) / 2 + row_pairs - 1) / row_pairs;
  t.cut = {.images = images,
           .row_pairs = row_pairs,
           .bands = bands,
           .tiles = static_cast<int>((t.n + images - 1) / images * bands),
           .in_rows = static_cast<int>(std::min(in_rows, kMaxElements))};  // more fit no block either
  t.by.rows = divisor(t.cut.in_rows);
  t.by.channels = divisor(t.extents.c);
  t.by.row_pairs = divisor(row_pairs);
}

double halo_bytes(const HaloTile& t) {
  const double inputs = static_cast<double>(t.extents.c) * t.extents.h * t.extents.w;
  const double outputs = static_cast<double>(t.extents.k) * t.output.out_h * t.output.out_w;
  return static_cast<double>(t.n) * t.extents.groups * (inputs + outputs) * (t.format.type == DType::f32 ? 4 : 2);
}

bool may_overlap(const TileChoice& choice, const cudaDeviceProp& device) {
  const HaloTile& t = choice.tile;
  const std::int64_t blocks = choice.blocks * ceil_div(t.extents.k, t.chunk) * t.extents.groups;
  return device.major >= 9 && choice.blocks >= t.cut.tiles && blocks <= device.multiProcessorCount;
}

TileChoice choose_tile(HaloTile t, const TileKernel& k, const cudaDeviceProp& device) {
  GABLE_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(k.kernel),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(device.sharedMemPerBlockOptin)));
  const Residents residents(k, device);
  TileChoice best;
  const int pairs = (t.output.ho + 1) / 2;
  for (int bands = 1; bands <= pairs; bands = bands < 12 ? bands + 1 : bands * 2) {
    cut_rows(t, 1, (pairs + bands - 1) / bands);
    consider(best, t, k, residents, device);
  }
  for (int images = 2; images <= std::min<std::int64_t>(kMaxImages, t.n); ++images) {
    cut_rows(t, images, pairs);
    consider(best, t, k, residents, device);
  }
  cut_rows(t, 1, 1);
  consider(best, t, k, residents, device);
  return best;
}

}  // namespace gable::cuda
