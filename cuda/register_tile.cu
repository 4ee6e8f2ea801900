// See register_tile.h.
#include "cuda/register_tile.h"

#include "cuda/check.h"
#include "cuda/implicit.cuh"

namespace gable::cuda {
namespace {

constexpr int kDepth = 16;  // of a stage
constexpr int kStages = 3;
constexpr int kWarpRows = 32, kWarpColumns = 64;
constexpr int kThreadRows = 8;
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
__device__ __forceinline__ void multiply(const float* a, const float* b, float (&sums)[2][kThreadRows][4]) {
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
        sums[0][i][0] = fmaf(value, low.x, sums[0][i][0]);
        sums[0][i][1] = fmaf(value, low.y, sums[0][i][1]);
        sums[0][i][2] = fmaf(value, low.z, sums[0][i][2]);
        sums[0][i][3] = fmaf(value, low.w, sums[0][i][3]);
        sums[1][i][0] = fmaf(value, high.x, sums[1][i][0]);
        sums[1][i][1] = fmaf(value, high.y, sums[1][i][1]);
        sums[1][i][2] = fmaf(value, high.z, sums[1][i][2]);
        sums[1][i][3] = fmaf(value, high.w, sums[1][i][3]);
      }
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
  const BlockPlace place = block_place<kRows, kColumns>(g, splits, kDepth);
  Loader<kRows, kColumns, vector> loader(g, x, packed, place.row, place.column, place.group, place.first * kDepth);
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (place.first + s < place.last) loader.load(g, stages + s * kStage);
    commit_copies();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / (kColumns / kWarpColumns) * kWarpRows;
  const int warp_column = warp % (kColumns / kWarpColumns) * kWarpColumns;
  const int a_at = (warp_row + lane / 8) * kRowPitch, b_at = kRows * kRowPitch + warp_column + lane % 8 * 4;
  float sums[2][kThreadRows][4] = {};  // columns 0 to 3, and 32 further on
  int now = 0;
  for (int step = place.first; step < place.last; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    const int next = now == 0 ? kStages - 1 : now - 1;
    if (step + kStages - 1 < place.last) loader.load(g, stages + next * kStage);
    commit_copies();
    multiply<kRows, kColumns>(stages + now * kStage + a_at, stages + now * kStage + b_at, sums);
    now = now + 1 == kStages ? 0 : now + 1;
  }
  const int thread_row = place.row + warp_row + lane / 8 * kThreadRows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = place.column + warp_column + lane % 8 * 4 + half * (kWarpColumns / 2);
    if (splits == 1) {
      store_rows(g, bias, y, thread_row, place.group, at, sums[half]);
    } else {
      store_part(g, parts, place.part, thread_row, place.group, at, sums[half]);
    }
  }
}

constexpr GemmCandidate candidate(int rows, int columns, double rate) {
  return {rows, columns, threads_of(rows, columns) / 32, shared_bytes(rows, columns), rate};
}
constexpr GemmCandidate kCandidates[] = {candidate(128, 128, 1.0), candidate(256, 64, 0.97), candidate(128, 64, 0.93),
                                         candidate(64, 64, 0.85)};
constexpr double kFmaPerCycle = 128;  // of a multiprocessor

using Kernel = GemmKernel<void(ImplicitGemm, int, const float*, const float*, const float*, float*, float*)>;

template <int kRows, int kColumns, bool vector>
Kernel compiled() {
  return {register_tile_kernel<kRows, kColumns, vector>, threads_of(kRows, kColumns), shared_bytes(kRows, kColumns)};
}

template <bool vector>
Kernel kernel_of(const GemmTile& tile) {
  if (tile.columns == 128) return compiled<128, 128, vector>();
  if (tile.rows == 256) return compiled<256, 64, vector>();
  return tile.rows == 128 ? compiled<128, 64, vector>() : compiled<64, 64, vector>();
}

/// Channels come in whole, aligned 16 bytes.
Kernel kernel_of(const Conv2dProblem& p, const GemmTile& tile) {
  return p.c % kPadding == 0 && p.group_c() % kPadding == 0 ? kernel_of<true>(tile) : kernel_of<false>(tile);
}

}  // namespace

RegisterTileConv2d::RegisterTileConv2d(const Conv2dProblem& problem, const cudaDeviceProp& device)
    : problem_(problem),
      gemm_(implicit_gemm_of(problem, kPadding, kPadding)),
      tile_(choose_tile(gemm_, kCandidates, kDepth, kFmaPerCycle, device)) {
  kernel_of(problem_, tile_).prepare();
}

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
  return {.kernel = "register_tile",
          .tile = tile_text(tile_) + ", 8x8 a thread",
          .staging = "three stages of 16 in shared memory",
          .fusion = "pool, bias and activation in registers"};
}

std::size_t RegisterTileConv2d::packed_bytes() const {
  return static_cast<std::size_t>(packed_order(problem_, kPadding, kPadding).elements()) * sizeof(float);
}

std::size_t RegisterTileConv2d::workspace_bytes() const { return parts_bytes(gemm_, tile_.splits); }

void RegisterTileConv2d::pack(const void* weights, const WeightStrides& strides, void* packed,
                              cudaStream_t stream) const {
  pack_weights(problem_, packed_order(problem_, kPadding, kPadding), weights, strides, packed, stream);
}

void RegisterTileConv2d::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                             cudaStream_t stream) const {
  const auto* source = static_cast<const float*>(x);
  auto* parts = static_cast<float*>(workspace);
  auto* to = static_cast<float*>(y);
  const Kernel kernel = kernel_of(problem_, tile_);
  const GemmGrid grid = grid_of(gemm_, tile_);
  kernel.function<<<dim3(grid.x, grid.y), kernel.threads, kernel.shared_bytes, stream>>>(
      gemm_, tile_.splits, source, static_cast<const float*>(packed), bias, to, parts);
  check_launch("register_tile");
  if (tile_.splits > 1) add_parts(gemm_, tile_.splits, parts, bias, to, stream);
}

}  // namespace gable::cuda
