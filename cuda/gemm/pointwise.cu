// See pointwise.h.
#include "cuda/gemm/pointwise.h"

#include <algorithm>
#include <numeric>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/packed_weights.h"
#include "cuda/common/vector_access.cuh"
#include "cuda/gemm/implicit.cuh"
#include "cuda/gemm/pixel_chunk.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kPixels = 32;           // of a warp's tile
constexpr int kMaxColumnTiles = 8;    // of eight output channels, in a warp
constexpr int kMaxDepthBytes = 2048;  // of a pixel's channels, for which shared memory holds weights
constexpr int kColumnMultiple = 8;    // of packed output channels

template <typename T>
struct PointwiseArguments {
  ImplicitGemm gemm;
  int tiles, chunks;            // of 32 pixels, of 64 bytes of channels
  int pitch_bytes;              // of a row of weights in shared memory
  int load_bytes, store_bytes;  // the widest accesses that divide a pixel's channels: 16, 8 or 4
  const T *x, *packed;
  const float* bias;
  T* y;
};

/// Binary logarithm of the tiles of columns that are stored together: a lane then has `bytes` of neighbouring channels,
/// or two, and the four lanes of a pixel four times as many. With more, a store's lanes would leave gaps, and a line of
/// memory would be written in several parts.
template <typename T, int column_tiles>
constexpr int log_together(int bytes) {
  int log = 0;
  while (2 << log <= column_tiles && (4 << log) * static_cast<int>(sizeof(T)) <= bytes) ++log;
  return log;
}

/// The output channel of row `row` of weights in shared memory: lane pair row % 8 / 2 has neighbouring channels in the
/// 2^log tiles that are stored together.
__device__ __forceinline__ int column_of(int row, int log) {
  const int tile = row / 8, place = row % 8;
  return (tile >> log << (3 + log)) + (place / 2 << (1 + log)) + (tile & (1 << log) - 1) * 2 + place % 2;
}

/// 16 bytes of channels of four pixels: rows lane / 4, + 8, + 16 and + 24 of the tile.
struct PixelChunk {
  uint4 rows[4];
};

/// Loads the chunks of a warp's tiles one after the other.
template <typename T>
class PixelLoader {
 public:
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));

  __device__ __forceinline__ PixelLoader(const PointwiseArguments<T>& a, int tile) : a_(a) { begin(tile); }

  __device__ __forceinline__ void begin(int tile) {
    channel_ = lane() % 4 * kElements;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const RowPixel pixel = row_pixel(a_.gemm, tile * kPixels + lane() / 4 + 8 * i, 0);
      offsets_[i] = pixel.row >= 0 ? pixel.offset : -1;
    }
  }

  /// The next chunk of the tile's pixels.
  __device__ __forceinline__ PixelChunk next() {
    PixelChunk chunk;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int valid = offsets_[i] >= 0 ? a_.gemm.c - channel_ : 0;
      const T* from = a_.x + offsets_[i] + channel_;
      chunk.rows[i] = a_.load_bytes == 16  ? load_pieces<16>(from, valid)
                      : a_.load_bytes == 8 ? load_pieces<8>(from, valid)
                                           : load_pieces<4>(from, valid);
    }
    channel_ += kChunkBytes / static_cast<int>(sizeof(T));
    return chunk;
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  const PointwiseArguments<T>& a_;
  int offsets_[4], channel_ = 0;
};

/// Adds the products of one chunk; `weights` is the lane's place in it.
template <typename T, int column_tiles>
__device__ __forceinline__ void multiply(const PixelChunk& x, const unsigned char* weights, int pitch,
                                         float (&sums)[2][column_tiles][4]) {
  unsigned a[2][2][4];  // 16 rows each, products of half a chunk
#pragma unroll
  for (int i = 0; i < 2; ++i) row_operands<T>(x.rows[2 * i], x.rows[2 * i + 1], a[i]);
#pragma unroll
  for (int j = 0; j < column_tiles; ++j) {
    const uint4 b = *reinterpret_cast<const uint4*>(weights + j * 8 * pitch);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      multiply_add<T>(sums[i][j], a[i][0], b.x, b.y);
      multiply_add<T>(sums[i][j], a[i][1], b.z, b.w);
    }
  }
}

/// Stores the first `valid` of a lane's neighbouring channels in accesses of `bytes`.
template <int bytes, typename T, int count>
__device__ __forceinline__ void store_pieces(T* to, const float (&values)[count], int valid) {
  constexpr int kElements = bytes / static_cast<int>(sizeof(T)) < count ? bytes / static_cast<int>(sizeof(T)) : count;
#pragma unroll
  for (int i = 0; i < count; i += kElements) {
    if (i >= valid) break;
    float piece[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) piece[e] = values[i + e];
    store_vector(to + i, piece);
  }
}

/// Bias and activation, and stores of `bytes`.
template <int bytes, typename T, int column_tiles>
__device__ __forceinline__ void store_tile(const PointwiseArguments<T>& a, int tile, const float* bias,
                                           float (&sums)[2][column_tiles][4]) {
  constexpr int m = 1 << log_together<T, column_tiles>(bytes);
  const ImplicitGemm& g = a.gemm;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int row = 0; row < 4; ++row) {  // lane / 4 + 8 row
    const int pixel = tile * kPixels + lane / 4 + 8 * row;
    if (pixel >= g.rows) break;
#pragma unroll
    for (int group = 0; group < column_tiles / m; ++group) {
      const int column = group * 8 * m + lane % 4 * 2 * m, valid = g.columns - column;
      if (valid <= 0) break;
      float values[2 * m];
#pragma unroll
      for (int j = 0; j < m; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float sum = sums[row / 2][group * m + j][row % 2 * 2 + e] + bias[column + 2 * j + e];
          values[2 * j + e] = activate(sum, g.activation);
        }
      }
      store_pieces<bytes>(a.y + static_cast<std::int64_t>(pixel) * g.k + column, values, valid);
    }
  }
}

/// Blocks that a multiprocessor's registers hold: more where sums take few, so that more loads are on their way.
constexpr int resident_blocks(int column_tiles) { return column_tiles == 1 ? 4 : column_tiles == 2 ? 3 : 2; }

/// Each warp takes several tiles.
template <typename T, int column_tiles>
__global__ void __launch_bounds__(kThreads, resident_blocks(column_tiles))
    pointwise_kernel(__grid_constant__ const PointwiseArguments<T> a) {
  extern __shared__ uint4 memory[];
  constexpr int kColumns = 8 * column_tiles, kElements = 16 / static_cast<int>(sizeof(T));
  auto* const bias = reinterpret_cast<float*>(memory);
  auto* const weights = reinterpret_cast<unsigned char*>(bias + kColumns);
  const ImplicitGemm& g = a.gemm;
  const int warps = static_cast<int>(gridDim.x) * kWarps;
  int tile = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  wait_for_previous_kernel();
  PixelLoader<T> loader(a, tile);
  PixelChunk ahead = loader.next();
  const int vectors = a.chunks * (kChunkBytes / 16);
  const int log = a.store_bytes == 16  ? log_together<T, column_tiles>(16)
                  : a.store_bytes == 8 ? log_together<T, column_tiles>(8)
                                       : log_together<T, column_tiles>(4);
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * vectors; i += kThreads) {
    const int row = i / vectors, at = i - row * vectors, column = column_of(row, log);
    const bool valid = column < g.columns && at * kElements < g.depth;
    copy_async<16>(weights + row * a.pitch_bytes + at * 16,
                   valid ? a.packed + column * g.depth + at * kElements : a.packed, valid);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kColumns; i += kThreads) {
    bias[i] = g.bias && i < g.columns ? a.bias[i] : 0.0f;
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned char* const mine = weights + lane / 4 * a.pitch_bytes + lane % 4 * 16;
  for (; tile < a.tiles; tile += warps) {
    float sums[2][column_tiles][4] = {};
    for (int chunk = 0; chunk < a.chunks; ++chunk) {
      const PixelChunk now = ahead;
      if (chunk + 1 == a.chunks) loader.begin(tile + warps);
      ahead = loader.next();
      multiply<T, column_tiles>(now, mine + chunk * kChunkBytes, a.pitch_bytes, sums);
    }
    if (a.store_bytes == 16) {
      store_tile<16>(a, tile, bias, sums);
    } else if (a.store_bytes == 8) {
      store_tile<8>(a, tile, bias, sums);
    } else {
      store_tile<4>(a, tile, bias, sums);
    }
  }
}

int element_bytes(const Conv2dProblem& p) { return static_cast<int>(size_of(p.dtype)); }
int channels_of_vector(const Conv2dProblem& p) { return 16 / element_bytes(p); }

/// The widest access that a pixel's channels are a multiple of.
int access_bytes(const Conv2dProblem& p, std::int64_t channels) {
  return static_cast<int>(std::gcd(channels * element_bytes(p), std::int64_t{16}));
}

PackedOrder order_of(const Conv2dProblem& p) {
  PackedOrder order = packed_order(p, channels_of_vector(p), kColumnMultiple);
  order.depth_innermost = true;
  return order;
}

/// Tiles of eight output channels: 1, 2, 4 or 8.
int column_tiles_of(const Conv2dProblem& p) {
  int tiles = 1;
  while (tiles < kMaxColumnTiles && 8 * tiles < p.k) tiles *= 2;
  return tiles;
}

int chunks_of(const Conv2dProblem& p) { return static_cast<int>(ceil_div(p.c * element_bytes(p), kChunkBytes)); }

/// Shared memory of a block: bias and weights.
int shared_bytes_of(const Conv2dProblem& p) {
  return 8 * column_tiles_of(p) * (chunk_pitch(chunks_of(p)) + static_cast<int>(sizeof(float)));
}

template <typename T>
auto kernel_of(int column_tiles) -> void (*)(PointwiseArguments<T>) {
  switch (column_tiles) {
    case 1:
      return pointwise_kernel<T, 1>;
    case 2:
      return pointwise_kernel<T, 2>;
    case 4:
      return pointwise_kernel<T, 4>;
    default:
      return pointwise_kernel<T, kMaxColumnTiles>;
  }
}

class PointwisePlan final : public PackedOrderPlan {
 public:
  PointwisePlan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  void note_paths() const;
  template <typename T>
  void launch_with(const void* x, const void* packed, const float* bias, void* y, cudaStream_t stream) const;

  ImplicitGemm gemm_;
  int column_tiles_, chunks_, load_bytes_, store_bytes_, shared_bytes_;
  LaunchShape shape_;
};

PointwisePlan::PointwisePlan(const Conv2dProblem& problem, const cudaDeviceProp& device)
    : PackedOrderPlan(problem, order_of(problem)),
      gemm_(implicit_gemm_of(problem, channels_of_vector(problem), kColumnMultiple)),
      column_tiles_(column_tiles_of(problem)),
      chunks_(chunks_of(problem)),
      load_bytes_(access_bytes(problem, problem.c)),
      store_bytes_(access_bytes(problem, problem.k)),
      shared_bytes_(shared_bytes_of(problem)) {
  with_type(problem.dtype, [&](auto zero) {
    const auto kernel = kernel_of<decltype(zero)>(column_tiles_);
    GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(device.sharedMemPerBlockOptin)));
    int resident = 1;
    GABLE_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads,
                                                                   static_cast<std::size_t>(shared_bytes_)));
    const std::int64_t wanted = ceil_div(gemm_.rows, kPixels * kWarps);
    const std::int64_t most = std::max(1, resident * device.multiProcessorCount);
    shape_.grid = dim3(static_cast<unsigned>(std::min(wanted, most)));
  });
  shape_.threads = kThreads;
  shape_.shared_bytes = shared_bytes_;
  shape_.overlaps = device.major >= 9;
}

Conv2dDescription PointwisePlan::description() const {
  return {
      .kernel = "pointwise",
      .tile = tile_text({kPixels, 8 * column_tiles_, 1}) + " a warp",
      .staging = "pixels from memory to registers in loads of " + std::to_string(load_bytes_) +
                 " bytes, weights in shared memory",
      .fusion = "bias and activation on the sums in registers, stores of " + std::to_string(store_bytes_) + " bytes"};
}

void PointwisePlan::note_paths() const {
  note_path(column_tiles_ == 1   ? Path::pointwise_8_channels
            : column_tiles_ == 2 ? Path::pointwise_16_channels
            : column_tiles_ == 4 ? Path::pointwise_32_channels
                                 : Path::pointwise_64_channels);
  if (load_bytes_ < 16) note_path(Path::pointwise_narrow_loads);
  if (store_bytes_ < 16) note_path(Path::pointwise_narrow_stores);
  if (!gemm_.line) note_path(Path::pointwise_strided);
}

template <typename T>
void PointwisePlan::launch_with(const void* x, const void* packed, const float* bias, void* y,
                                cudaStream_t stream) const {
  const PointwiseArguments<T> a{.gemm = gemm_,
                                .tiles = static_cast<int>(ceil_div(gemm_.rows, kPixels)),
                                .chunks = chunks_,
                                .pitch_bytes = chunk_pitch(chunks_),
                                .load_bytes = load_bytes_,
                                .store_bytes = store_bytes_,
                                .x = static_cast<const T*>(x),
                                .packed = static_cast<const T*>(packed),
                                .bias = bias,
                                .y = static_cast<T*>(y)};
  cuda::launch(kernel_of<T>(column_tiles_), shape_, stream, a);
}

void PointwisePlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                        cudaStream_t stream) const {
  with_type(problem().dtype, [&](auto zero) { launch_with<decltype(zero)>(x, packed, bias, y, stream); });
  note_paths();
}

/// What loads of less than 16 bytes take: a factor on chunks behind the first, time of the first, and of each piece.
struct NarrowLoads {
  double chunks = 1, first_chunk = 0, piece = 0;
};
NarrowLoads narrow_loads(int bytes) {
  if (bytes == 16) return {};
  return bytes == 8 ? NarrowLoads{1.37, 0.55e-6, 3.5e-12} : NarrowLoads{2.07, 0.70e-6, 3.0e-12};
}

}  // namespace

std::string Pointwise::missing(const cudaDeviceProp& device) { return mma_missing(device); }

std::string Pointwise::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const bool tensor = p.dtype == DType::f32 ? p.math == Math::tf32 : p.math == Math::strict;
  if (!tensor) return "it multiplies f16, bf16, and f32 as tf32 (math tf32)";
  if (!p.nhwc) return "layout nchw; it takes nhwc";
  if (p.groups != 1) return std::to_string(p.groups) + " groups; it takes one";
  if (p.r * p.s != 1) return "filter " + std::to_string(p.r) + "x" + std::to_string(p.s) + "; it takes 1x1";
  if (p.pad_top != 0 || p.pad_left != 0 || (p.ho - 1) * p.stride_h >= p.h || (p.wo - 1) * p.stride_w >= p.w) {
    return "padding; it takes none";
  }
  if (!p.pool.none()) return "a max-pool; it has none";
  for (const std::int64_t channels : {p.c, p.k}) {
    if (channels * element_bytes(p) % 4 != 0 || channels == 0) {
      return std::to_string(channels) + " channels; it takes multiples of " + std::to_string(4 / element_bytes(p));
    }
  }
  constexpr std::int64_t kMaxColumns = 8 * kMaxColumnTiles;
  if (p.k > kMaxColumns) {
    return std::to_string(p.k) + " output channels; it is made for at most " + std::to_string(kMaxColumns);
  }
  if (p.c * element_bytes(p) > kMaxDepthBytes) {
    return std::to_string(p.c) + " input channels; its shared memory holds weights of " +
           std::to_string(kMaxDepthBytes / element_bytes(p));
  }
  if (static_cast<std::size_t>(shared_bytes_of(p)) > device.sharedMemPerBlockOptin) {
    return "weights of " + std::to_string(shared_bytes_of(p)) + " bytes; a block's shared memory holds " +
           std::to_string(device.sharedMemPerBlockOptin);
  }
  return implicit_refusal(p);
}

double Pointwise::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  // Times of a warp's tile while the other warps of a multiprocessor work on theirs. Fitted to half of 126 layers on an
  // H200 (f16, bf16 and tf32, batch 32 and 1), of which it errs by 10 % (root mean square) on the other half. The
  // memory's rates and what narrow accesses take are of 42 other layers; on 41 that no fit saw it errs by 15 %.
  constexpr double kLaunch = 0.56e-6, kTile = 1.38e-6, kChunk = 0.45e-6, kStaging = 2.6e-9;
  constexpr double kReadBytes = 3.3e12, kWrittenBytes = 2.4e12;  // a second
  constexpr double kNarrowStores = 1.18;                         // factor where they have less than 16 bytes
  // Of stores of 4 bytes whose neighbours other lanes store, where a warp has many columns and few.
  constexpr double kSingleStore = 6.5e-12, kSingleStoreOfFew = 2.7e-12;
  constexpr int kFewColumns = 8;
  const bool f32 = p.dtype == DType::f32;
  const double column = f32 ? 0.51e-6 : 0.41e-6, products = f32 ? 0.094e-6 : 0.102e-6;
  constexpr int kReserved = 1024;  // bytes of shared memory, by the system, of each block
  const int columns = column_tiles_of(p), chunks = chunks_of(p);
  const int fit = static_cast<int>(device.sharedMemPerMultiprocessor) / (shared_bytes_of(p) + kReserved);
  const std::int64_t resident = std::clamp(fit, 1, resident_blocks(columns));
  const std::int64_t pixels = p.n * p.ho * p.wo, warps = device.multiProcessorCount * resident * kWarps;
  const auto rounds = static_cast<double>(ceil_div(ceil_div(pixels, kPixels), warps));
  const double stores = column * columns * (access_bytes(p, p.k) < 16 ? kNarrowStores : 1);
  const NarrowLoads narrow = narrow_loads(access_bytes(p, p.c));
  const double loads = std::max(kChunk, products * columns) * narrow.chunks;
  const double tiles = rounds * (kTile + narrow.first_chunk + stores + loads * (chunks - 1));
  const auto rows = static_cast<double>(pixels);
  const auto read = rows * static_cast<double>(p.c * element_bytes(p));
  const auto written = rows * static_cast<double>(p.k * element_bytes(p));
  const double store = p.k > kFewColumns ? kSingleStore : kSingleStoreOfFew;
  const double single = access_bytes(p, p.k) == 4 ? store * written / 4 : 0;
  const double pieces = narrow.piece * read / access_bytes(p, p.c);
  const double moving = read / kReadBytes + written / kWrittenBytes;
  return kLaunch + std::max({kStaging * columns * chunks + tiles, moving, single, pieces});
}

std::unique_ptr<Conv2dPlan> Pointwise::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<PointwisePlan>(problem, device);
}

}  // namespace gable::cuda
