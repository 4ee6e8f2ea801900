// See register_tile.h.
#include "cuda/register_tile.h"

#include <algorithm>
#include <limits>

#include "cuda/check.h"
#include "cuda/device_code.cuh"
#include "cuda/implicit.cuh"

namespace gable::cuda {
namespace {

constexpr int kDepth = 16;  // of a stage
constexpr int kStages = 3;
constexpr int kWarpRows = 32, kWarpColumns = 64;
constexpr int kThreadRows = 8, kThreadColumns = 8;
constexpr int kRowPitch = kDepth + 4;  // of A in shared memory: 8 rows × 16 bytes then lie in 32 different banks
constexpr int kPadding = 4;            // packed channels are multiples of it: 16 bytes of f32

constexpr int threads_of(int rows, int columns) { return rows / kWarpRows * (columns / kWarpColumns) * 32; }
constexpr int stage_floats(int rows, int columns) { return rows * kRowPitch + kDepth * columns; }
constexpr int shared_bytes(int rows, int columns) {
  return kStages * stage_floats(rows, columns) * static_cast<int>(sizeof(float));
}

/// Which row of the product lies in row `slot` of A's tile: a thread reads slots 4 apart, without bank conflicts, and
/// gets eight neighbouring rows, two windows of a pool.
__device__ __forceinline__ int row_of_slot(int slot) {
  return slot / kWarpRows * kWarpRows + slot % 4 * kThreadRows + slot % kWarpRows / 4;
}

template <int kRows, int kColumns, bool vector>
class Loader {
 public:
  static constexpr int kThreads = threads_of(kRows, kColumns);
  static constexpr int kChunks = kDepth / 4;  // of 16 bytes in a row
  static constexpr int kA = kRows * kChunks / kThreads;
  static constexpr int kB = kDepth * kColumns / 4 / kThreads;
  static_assert(kA * kThreads == kRows * kChunks && kB * kThreads == kDepth * kColumns / 4);

  __device__ Loader(const ImplicitGemm& g, const float* x, const float* packed, int row, int column, int group,
                    int depth)
      : x_(x), cursor_(g, depth + static_cast<int>(threadIdx.x) % kChunks * 4), depth_(depth) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      pixels_[i] = row_pixel(g, row + row_of_slot(thread / kChunks + i * (kThreads / kChunks)), group);
    }
    b_row_ = thread / (kColumns / 4);
    const int b_column = thread % (kColumns / 4) * 4;
    b_valid_ = column + b_column < g.padded_k;
    b_ = packed + (static_cast<std::int64_t>(group) * g.depth + depth + b_row_) * g.padded_k + column + b_column;
    b_to_ = b_row_ * kColumns + b_column;
  }

  /// The next stage of the depth.
  __device__ __forceinline__ void load(const ImplicitGemm& g, float* stage) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      float* to = stage + (thread / kChunks + i * (kThreads / kChunks)) * kRowPitch + thread % kChunks * 4;
      copy_pixel<float, vector>(g, x_, pixels_[i], cursor_, to);
    }
    float* b_stage = stage + kRows * kRowPitch + b_to_;
    constexpr int kBRows = kThreads / (kColumns / 4);
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      const bool valid = b_valid_ && depth_ + b_row_ + i * kBRows < g.depth;
      copy_async<16>(b_stage + i * kBRows * kColumns, valid ? b_ + i * kBRows * g.padded_k : x_, valid);
    }
    cursor_.advance(g, kDepth);
    depth_ += kDepth;
    b_ += kDepth * g.padded_k;
  }

 private:
  const float* x_;
  const float* b_;
  RowPixel pixels_[kA];
  DepthCursor cursor_;
  int depth_, b_row_, b_to_;
  bool b_valid_;
};

/// One stage's products into the thread's sums.
template <int kRows, int kColumns>
__device__ __forceinline__ void multiply(const float* a, const float* b, float (&sums)[kThreadRows][kThreadColumns]) {
#pragma unroll
  for (int k = 0; k < kDepth; k += 4) {
    float4 left[kThreadRows];
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) left[i] = *reinterpret_cast<const float4*>(a + 4 * i * kRowPitch + k);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 low = *reinterpret_cast<const float4*>(b + (k + j) * kColumns);
      const float4 high = *reinterpret_cast<const float4*>(b + (k + j) * kColumns + kWarpColumns / 2);
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const float value = j == 0 ? left[i].x : j == 1 ? left[i].y : j == 2 ? left[i].z : left[i].w;
        sums[i][0] = fmaf(value, low.x, sums[i][0]);
        sums[i][1] = fmaf(value, low.y, sums[i][1]);
        sums[i][2] = fmaf(value, low.z, sums[i][2]);
        sums[i][3] = fmaf(value, low.w, sums[i][3]);
        sums[i][4] = fmaf(value, high.x, sums[i][4]);
        sums[i][5] = fmaf(value, high.y, sums[i][5]);
        sums[i][6] = fmaf(value, high.z, sums[i][6]);
        sums[i][7] = fmaf(value, high.w, sums[i][7]);
      }
    }
  }
}

/// Four columns of one output pixel, `at` columns into the group.
__device__ __forceinline__ void store(const ImplicitGemm& g, const float* bias, float* y, int pixel, int group, int at,
                                      float4 values) {
  const int channel = group * g.columns + at;
  float v[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (g.bias && at + j < g.columns) v[j] += bias[channel + j];
    v[j] = activate(v[j], g.activation);
  }
  float* to = y + static_cast<std::int64_t>(pixel) * g.k + channel;
  if (g.columns % 4 == 0 && g.k % 4 == 0) {
    if (at < g.columns) *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (at + j < g.columns) to[j] = v[j];
  }
}

__device__ __forceinline__ float4 max4(float4 a, float4 b) {
  return make_float4(max_or_nan(a.x, b.x), max_or_nan(a.y, b.y), max_or_nan(a.z, b.z), max_or_nan(a.w, b.w));
}

__device__ __forceinline__ float4 quad(const float (&sums)[kThreadColumns], int half) {
  return make_float4(sums[4 * half], sums[4 * half + 1], sums[4 * half + 2], sums[4 * half + 3]);
}

/// The thread's eight rows from `row` on, columns `column` + {0..3, 32..35} of the group.
__device__ __forceinline__ void store_outputs(const ImplicitGemm& g, const float* bias, float* y, int row, int column,
                                              int group, const float (&sums)[kThreadRows][kThreadColumns]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = column + half * (kWarpColumns / 2);
    if (g.pooled) {
#pragma unroll
      for (int i = 0; i < kThreadRows; i += 4) {
        const float4 best = max4(max4(quad(sums[i], half), quad(sums[i + 1], half)),
                                 max4(quad(sums[i + 2], half), quad(sums[i + 3], half)));
        if (row + i < g.rows) store(g, bias, y, (row + i) / 4, group, at, best);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        if (row + i < g.rows) store(g, bias, y, row + i, group, at, quad(sums[i], half));
      }
    }
  }
}

/// Sums of one part of the depth: [part][row][group][padded column].
__device__ __forceinline__ void store_part(const ImplicitGemm& g, float* parts, int part, int row, int column,
                                           int group, const float (&sums)[kThreadRows][kThreadColumns]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = column + half * (kWarpColumns / 2);
    if (at >= g.padded_k) continue;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      if (row + i >= g.rows) break;
      const std::int64_t place = (static_cast<std::int64_t>(part) * g.rows + row + i) * g.groups + group;
      *reinterpret_cast<float4*>(parts + place * g.padded_k + at) = quad(sums[i], half);
    }
  }
}

/// Grid: x the tiles, columns first, since tiles of the same rows share pixels in the L2; y groups × parts of the
/// depth.
template <int kRows, int kColumns, bool vector>
__global__ void __launch_bounds__(threads_of(kRows, kColumns), 512 / threads_of(kRows, kColumns))
    register_tile_kernel(ImplicitGemm g, int splits, const float* x, const float* packed, const float* bias, float* y,
                         float* parts) {
  extern __shared__ float4 memory[];
  auto* stages = reinterpret_cast<float*>(memory);
  constexpr int kStage = stage_floats(kRows, kColumns);
  const int group = static_cast<int>(blockIdx.y) / splits, part = static_cast<int>(blockIdx.y) % splits;
  const int steps = (g.depth + kDepth - 1) / kDepth;
  const int first = static_cast<int>(static_cast<std::int64_t>(steps) * part / splits);
  const int last = static_cast<int>(static_cast<std::int64_t>(steps) * (part + 1) / splits);
  const int across = (g.columns + kColumns - 1) / kColumns, tile = static_cast<int>(blockIdx.x);
  const int row = tile / across * kRows, column = tile % across * kColumns;

  Loader<kRows, kColumns, vector> loader(g, x, packed, row, column, group, first * kDepth);
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (first + s < last) loader.load(g, stages + s * kStage);
    commit_copies();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / (kColumns / kWarpColumns) * kWarpRows;
  const int warp_column = warp % (kColumns / kWarpColumns) * kWarpColumns;
  const int a_at = (warp_row + lane / 8) * kRowPitch, b_at = kRows * kRowPitch + warp_column + lane % 8 * 4;
  float sums[kThreadRows][kThreadColumns] = {};
  int now = 0;
  for (int step = first; step < last; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    const int next = now == 0 ? kStages - 1 : now - 1;
    if (step + kStages - 1 < last) loader.load(g, stages + next * kStage);
    commit_copies();
    multiply<kRows, kColumns>(stages + now * kStage + a_at, stages + now * kStage + b_at, sums);
    now = now + 1 == kStages ? 0 : now + 1;
  }
  const int thread_row = row + warp_row + lane / 8 * kThreadRows;
  const int thread_column = column + warp_column + lane % 8 * 4;
  if (splits == 1) {
    store_outputs(g, bias, y, thread_row, thread_column, group, sums);
  } else {
    store_part(g, parts, part, thread_row, thread_column, group, sums);
  }
}

/// One thread four columns of one output pixel.
__global__ void add_parts_kernel(ImplicitGemm g, int splits, const float* parts, const float* bias, float* y) {
  const int quads = g.padded_k / 4;
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int at = static_cast<int>(index % quads) * 4;
  const int group = static_cast<int>(index / quads % g.groups);
  const std::int64_t pixel = index / quads / g.groups;
  const int window = g.pooled ? 4 : 1;
  if (pixel * window >= g.rows) return;
  float4 best{};
  for (int i = 0; i < window; ++i) {
    float4 sum{};
    for (int part = 0; part < splits; ++part) {
      const std::int64_t place = (static_cast<std::int64_t>(part) * g.rows + pixel * window + i) * g.groups + group;
      const float4 v = *reinterpret_cast<const float4*>(parts + place * g.padded_k + at);
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    best = i == 0 ? sum : max4(best, sum);
  }
  store(g, bias, y, static_cast<int>(pixel), group, at, best);
}

/// What the choice of a tile is among; `rate` is what a full multiprocessor reaches of its peak with it.
struct Candidate {
  int rows, columns;
  double rate;
};
constexpr Candidate kCandidates[] = {{128, 128, 1.0}, {256, 64, 0.97}, {128, 64, 0.93}, {64, 64, 0.85}};

double occupancy_rate(int warps) { return warps >= 16 ? 1.0 : warps >= 12 ? 0.97 : warps >= 8 ? 0.88 : 0.6; }

/// Estimated cycles: the multiply-adds of the multiprocessor with the most blocks, and the pass over parts.
double cost(const ImplicitGemm& g, const Candidate& c, int splits, int processors) {
  constexpr double kFmaPerCycle = 128, kBytesPerCycle = 1200, kSecondLaunch = 4000;
  const std::int64_t blocks = ceil_div(g.rows, c.rows) * ceil_div(g.columns, c.columns) * g.groups * splits;
  const auto share = static_cast<double>(ceil_div(blocks, processors));
  const int warps_of_block = threads_of(c.rows, c.columns) / 32;
  const int resident = static_cast<int>(std::min<double>(share, 16.0 / warps_of_block));
  const double depth = static_cast<double>(ceil_div(ceil_div(g.depth, kDepth), splits) * kDepth);
  double cycles =
      share * c.rows * c.columns * depth / kFmaPerCycle / c.rate / occupancy_rate(resident * warps_of_block);
  if (splits > 1) {
    const double bytes = 4.0 * g.rows * g.groups * g.padded_k * (splits + 1);
    cycles += bytes / kBytesPerCycle + kSecondLaunch;
  }
  return cycles;
}

RegisterTileConv2d::Tile choose_tile(const ImplicitGemm& g, const cudaDeviceProp& device) {
  constexpr int kMostSplits = 16, kLeastSteps = 4;
  RegisterTileConv2d::Tile best;
  double least = std::numeric_limits<double>::max();
  for (const Candidate& c : kCandidates) {
    if (static_cast<std::size_t>(shared_bytes(c.rows, c.columns)) > device.sharedMemPerBlockOptin) continue;
    for (int splits = 1; splits <= kMostSplits; ++splits) {
      if (splits > 1 && g.depth < splits * kLeastSteps * kDepth) break;
      const double cycles = cost(g, c, splits, device.multiProcessorCount);
      if (cycles < least) {
        least = cycles;
        best = {.rows = c.rows, .columns = c.columns, .splits = splits};
      }
    }
  }
  return best;
}

struct Operands {
  const float* x;
  const float* packed;
  const float* bias;
  float* y;
  float* parts;
};

template <int kRows, int kColumns, bool vector>
void launch(const ImplicitGemm& g, int splits, const Operands& o, cudaStream_t stream) {
  constexpr int kBytes = shared_bytes(kRows, kColumns);
  const auto kernel = register_tile_kernel<kRows, kColumns, vector>;
  GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const dim3 grid(static_cast<unsigned>(ceil_div(g.columns, kColumns) * ceil_div(g.rows, kRows)),
                  static_cast<unsigned>(g.groups * splits));
  kernel<<<grid, threads_of(kRows, kColumns), kBytes, stream>>>(g, splits, o.x, o.packed, o.bias, o.y, o.parts);
  check_launch("register_tile");
}

template <bool vector>
void launch_tile(const ImplicitGemm& g, const RegisterTileConv2d::Tile& tile, const Operands& o, cudaStream_t stream) {
  if (tile.columns == 128) return launch<128, 128, vector>(g, tile.splits, o, stream);
  if (tile.rows == 256) return launch<256, 64, vector>(g, tile.splits, o, stream);
  if (tile.rows == 128) return launch<128, 64, vector>(g, tile.splits, o, stream);
  launch<64, 64, vector>(g, tile.splits, o, stream);
}

}  // namespace

RegisterTileConv2d::RegisterTileConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device)
    : problem_(problem), gemm_(implicit_gemm_of(problem, kPadding, kPadding)), tile_(choose_tile(gemm_, device)) {}

std::string RegisterTileConv2d::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  constexpr std::int64_t kLeastColumns = 4;
  if (p.type != Type::f32 || p.math != Math::strict) {
    return std::string(name_of(p.type)) + (p.math == Math::strict ? "" : " on the tensor cores") +
           ": it computes strict f32";
  }
  if (p.group_k() < kLeastColumns && p.groups > 1) {
    return std::to_string(p.group_k()) + " output channels a group; a tile of " + std::to_string(kWarpColumns) +
           " would be empty below " + std::to_string(kLeastColumns);
  }
  return implicit_refusal(p);
}

Conv2dDescription RegisterTileConv2d::description() const {
  std::string tile = "tiles of " + std::to_string(tile_.rows) + " pixels x " + std::to_string(tile_.columns) +
                     " channels, 8x8 a thread";
  if (tile_.splits > 1) tile += ", the depth in " + std::to_string(tile_.splits) + " parts";
  return {.kernel = "register_tile",
          .tile = tile,
          .staging = "three stages of 16 in shared memory",
          .fusion = "pool, bias and activation in registers"};
}

std::size_t RegisterTileConv2d::packed_bytes() const {
  return static_cast<std::size_t>(packed_order(problem_, kPadding, kPadding).elements()) * sizeof(float);
}

std::size_t RegisterTileConv2d::workspace_bytes() const {
  if (tile_.splits == 1) return 0;
  return sizeof(float) * static_cast<std::size_t>(tile_.splits) * static_cast<std::size_t>(gemm_.rows) *
         static_cast<std::size_t>(gemm_.groups) * static_cast<std::size_t>(gemm_.padded_k);
}

void RegisterTileConv2d::pack(const void* weights, const WeightStrides& strides, void* packed,
                              cudaStream_t stream) const {
  pack_weights(problem_, packed_order(problem_, kPadding, kPadding), weights, strides, packed, stream);
}

void RegisterTileConv2d::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                             cudaStream_t stream) const {
  constexpr int kThreads = 256;
  const Operands o{.x = static_cast<const float*>(x),
                   .packed = static_cast<const float*>(packed),
                   .bias = bias,
                   .y = static_cast<float*>(y),
                   .parts = static_cast<float*>(workspace)};
  if (problem_.c % 4 == 0 && problem_.group_c() % 4 == 0) {
    launch_tile<true>(gemm_, tile_, o, stream);
  } else {
    launch_tile<false>(gemm_, tile_, o, stream);
  }
  if (tile_.splits == 1) return;
  const std::int64_t threads = std::int64_t{gemm_.rows} / (gemm_.pooled ? 4 : 1) * gemm_.groups * (gemm_.padded_k / 4);
  add_parts_kernel<<<static_cast<unsigned>(ceil_div(threads, kThreads)), kThreads, 0, stream>>>(gemm_, tile_.splits,
                                                                                                o.parts, bias, o.y);
  check_launch("register_tile's parts");
}

}  // namespace gable::cuda
