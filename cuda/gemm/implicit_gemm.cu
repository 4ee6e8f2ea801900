// See implicit_gemm.h.
#include "cuda/gemm/implicit_gemm.h"

#include "cuda/common/coverage.h"
#include "cuda/gemm/implicit.cuh"
#include "cuda/gemm/mma.cuh"
#include "cuda/gemm/packed_weights.h"

namespace gable::cuda {
namespace {

constexpr int kDepthBytes = 64;  // of a stage
constexpr int kStages = 3;
constexpr int kPitchBytes = kDepthBytes + 16;  // 8 rows × 16 bytes then lie in 32 different banks
constexpr int kWarpRows = 64, kWarpColumns = 32;
constexpr int kRowTiles = kWarpRows / 16, kColumnTiles = kWarpColumns / 8;
constexpr int kThreadRows = 8, kThreadColumns = 8;

constexpr int threads_of(int rows, int columns) { return rows / kWarpRows * (columns / kWarpColumns) * 32; }
constexpr int stage_bytes(int rows, int columns) { return (rows + columns) * kPitchBytes; }
constexpr int shared_bytes(int rows, int columns) { return kStages * stage_bytes(rows, columns); }

/// Which row lies in a slot of the tile: a thread's slots are 8 apart, its rows neighbours.
__device__ __forceinline__ int row_of_slot(int slot) {
  return slot / kWarpRows * kWarpRows + slot % 8 * kThreadRows + slot % kWarpRows / 8;
}

/// Which column: a thread's slots are pairs 8 apart, its columns neighbours.
__device__ __forceinline__ int column_of_slot(int slot) {
  return slot / kWarpColumns * kWarpColumns + slot % 8 / 2 * kThreadColumns + slot % kWarpColumns / 8 * 2 + slot % 2;
}

/// Four 8×8 matrices of 16-bit elements, or 8×4 of f32; each lane gives the address of a row.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

template <typename T, int kRows, int kColumns, bool vector>
class Loader {
 public:
  static constexpr int kThreads = threads_of(kRows, kColumns);
  static constexpr int kChunks = kDepthBytes / 16;
  static constexpr int kChunkElements = 16 / sizeof(T);
  static constexpr int kA = kRows * kChunks / kThreads, kB = kColumns * kChunks / kThreads;
  static constexpr int kSlots = kThreads / kChunks;  // from one of a thread's rows to the next

  __device__ Loader(const ImplicitGemm& g, const T* x, const T* packed, int row, int column, int group, int depth)
      : x_(x), cursor_(g, depth + chunk() * kChunkElements), depth_(depth + chunk() * kChunkElements) {
#pragma unroll
    for (int i = 0; i < kA; ++i) pixels_[i] = row_pixel(g, row + row_of_slot(slot() + i * kSlots), group);
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      const int at = column + column_of_slot(slot() + i * kSlots);
      columns_[i] = at < g.columns ? (group * g.padded_k + at) * g.depth : -1;
    }
    packed_ = packed;
  }

  /// The next stage of the depth.
  __device__ __forceinline__ void load(const ImplicitGemm& g, unsigned char* stage) {
    unsigned char* to = stage + slot() * kPitchBytes + chunk() * 16;
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      copy_pixel<T, vector>(g, x_, pixels_[i], cursor_, reinterpret_cast<T*>(to + i * kSlots * kPitchBytes));
    }
    to += kRows * kPitchBytes;
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      const bool valid = columns_[i] >= 0 && depth_ < g.depth;
      copy_async<16>(to + i * kSlots * kPitchBytes, valid ? packed_ + columns_[i] + depth_ : packed_, valid);
    }
    constexpr int kStep = kDepthBytes / sizeof(T);
    cursor_.advance(g, kStep);
    depth_ += kStep;
  }

 private:
  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ static int slot() { return static_cast<int>(threadIdx.x) / kChunks; }

  const T* x_;
  const T* packed_;
  RowPixel pixels_[kA];
  int columns_[kB];
  DepthCursor cursor_;
  int depth_;
};

/// Adds one stage's products to the warp's accumulators; a and b are the lane's addresses for ldmatrix.
template <typename T>
__device__ __forceinline__ void multiply(std::uint32_t a_at, std::uint32_t b_at,
                                         float (&sums)[kRowTiles][kColumnTiles][4]) {
#pragma unroll
  for (int k = 0; k < kDepthBytes; k += 32) {
    unsigned a[kRowTiles][4], b[kColumnTiles / 2][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) load_matrices(a[i], a_at + i * 16 * kPitchBytes + k);
#pragma unroll
    for (int j = 0; j < kColumnTiles / 2; ++j) load_matrices(b[j], b_at + j * 16 * kPitchBytes + k);
    if constexpr (sizeof(T) == 4) {  // weights are rounded when they are packed
#pragma unroll
      for (auto& tile : a) {
#pragma unroll
        for (unsigned& value : tile) value = __float_as_uint(round_to_tf32(__uint_as_float(value)));
      }
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        multiply_add<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

/// Grid: x the tiles, columns first, since tiles of the same rows share pixels in the L2; y groups × parts of the
/// depth.
template <typename T, int kRows, int kColumns, bool vector>
__global__ void __launch_bounds__(threads_of(kRows, kColumns), 512 / threads_of(kRows, kColumns))
    implicit_gemm_kernel(ImplicitGemm g, int splits, const T* x, const T* packed, const float* bias, T* y,
                         float* parts) {
  extern __shared__ uint4 memory[];
  auto* stages = reinterpret_cast<unsigned char*>(memory);
  constexpr int kStage = stage_bytes(kRows, kColumns), kDepth = kDepthBytes / static_cast<int>(sizeof(T));
  const BlockPlace place = block_place<kRows, kColumns>(g, splits, kDepth);
  Loader<T, kRows, kColumns, vector> loader(g, x, packed, place.row, place.column, place.group, place.first * kDepth);
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (place.first + s < place.last) loader.load(g, stages + s * kStage);
    commit_copies();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / (kColumns / kWarpColumns) * kWarpRows;
  const int warp_column = warp % (kColumns / kWarpColumns) * kWarpColumns;
  // Of A: rows 0-7 and 8-15, then the next 16 bytes. Of B: 16 bytes, the next, then columns 8-15.
  const std::uint32_t a_at = shared_address(stages) + (warp_row + lane % 16) * kPitchBytes + lane / 16 * 16;
  const std::uint32_t b_at =
      shared_address(stages) + (kRows + warp_column + lane % 8 + lane / 16 * 8) * kPitchBytes + lane / 8 % 2 * 16;
  float sums[kRowTiles][kColumnTiles][4] = {};
  int now = 0;
  for (int step = place.first; step < place.last; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    const int next = now == 0 ? kStages - 1 : now - 1;
    if (step + kStages - 1 < place.last) loader.load(g, stages + next * kStage);
    commit_copies();
    multiply<T>(a_at + now * kStage, b_at + now * kStage, sums);
    now = now + 1 == kStages ? 0 : now + 1;
  }
  // The thread's accumulators by row and column.
  float mine[kThreadRows][kThreadColumns];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadColumns; ++j) mine[i][j] = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
  }
  const int thread_row = place.row + warp_row + lane / 4 * kThreadRows;
  const int at = place.column + warp_column + lane % 4 * kThreadColumns;
  if (splits == 1) {
    store_rows(g, bias, y, thread_row, place.group, at, mine);
  } else {
    store_part(g, parts, place.part, thread_row, place.group, at, mine);
  }
}

constexpr GemmCandidate candidate(int rows, int columns, double rate) {
  const int threads = threads_of(rows, columns);
  return {rows, columns, threads / 32, 512 / threads, shared_bytes(rows, columns), rate};
}
constexpr GemmCandidate kCandidates[] = {candidate(128, 128, 1.0), candidate(128, 64, 0.9), candidate(64, 64, 0.75)};

int elements_of_stage(const Conv2dProblem& p) { return kDepthBytes / static_cast<int>(size_of(p.dtype)); }

/// Multiply-adds that mma.sync reaches a cycle on a multiprocessor, approximately: half of the tensor cores' peak on
/// sm_90, all of it on sm_80.
double fma_per_cycle(const Conv2dProblem& p) { return p.dtype == DType::f32 ? 512 : 1024; }

/// Channels of a row are whole 16 bytes.
int channels_of_chunk(const Conv2dProblem& p) { return 16 / static_cast<int>(size_of(p.dtype)); }

template <typename T>
using Kernel = GemmKernel<void(ImplicitGemm, int, const T*, const T*, const float*, T*, float*)>;

template <typename T, int kRows, int kColumns, bool vector>
Kernel<T> compiled() {
  return {implicit_gemm_kernel<T, kRows, kColumns, vector>, threads_of(kRows, kColumns), shared_bytes(kRows, kColumns)};
}

template <typename T, bool vector>
Kernel<T> kernel_of(const GemmTile& tile) {
  if (tile.columns == 128) return compiled<T, 128, 128, vector>();
  return tile.rows == 128 ? compiled<T, 128, 64, vector>() : compiled<T, 64, 64, vector>();
}

/// Channels come in whole, aligned 16 bytes, or one at a time.
bool has_vectors(const Conv2dProblem& p) {
  const int chunk = channels_of_chunk(p);
  return p.c % chunk == 0 && p.group_c() % chunk == 0;
}

template <typename T>
Kernel<T> kernel_of(const Conv2dProblem& p, const GemmTile& tile) {
  return has_vectors(p) ? kernel_of<T, true>(tile) : kernel_of<T, false>(tile);
}

void note_paths(const Conv2dProblem& p, const GemmTile& tile) {
  note_path(tile.columns == 128 ? Path::implicit_gemm_128x128
            : tile.rows == 128  ? Path::implicit_gemm_128x64
                                : Path::implicit_gemm_64x64);
  note_path(has_vectors(p) ? Path::implicit_gemm_vectors : Path::implicit_gemm_elements);
  if (tile.splits > 1) note_path(Path::implicit_gemm_split);
}

/// The order of packed weights.
PackedOrder order_of(const Conv2dProblem& p) {
  PackedOrder order = packed_order(p, channels_of_chunk(p), kThreadColumns);
  order.depth_innermost = true;
  return order;
}

class ImplicitGemmPlan final : public PackedOrderPlan {
 public:
  ImplicitGemmPlan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  std::size_t workspace_bytes() const override { return parts_bytes(gemm_, tile_.splits); }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  ImplicitGemm gemm_;
  GemmTile tile_;
};

ImplicitGemmPlan::ImplicitGemmPlan(const Conv2dProblem& problem, const cudaDeviceProp& device)
    : PackedOrderPlan(problem, order_of(problem)),
      gemm_(implicit_gemm_of(problem, channels_of_chunk(problem), kThreadColumns)),
      tile_(choose_tile(gemm_, kCandidates, elements_of_stage(problem), fma_per_cycle(problem), device)) {
  with_type(problem.dtype, [&](auto zero) { kernel_of<decltype(zero)>(problem, tile_).prepare(); });
}

Conv2dDescription ImplicitGemmPlan::description() const {
  return {.kernel = "implicit_gemm",
          .tile = tile_text(tile_) + ", 64x32 a warp",
          .staging = "three stages of 64 bytes in shared memory",
          .fusion = "pool, bias and activation in registers"};
}

void ImplicitGemmPlan::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                           cudaStream_t stream) const {
  const GemmGrid grid = grid_of(gemm_, tile_);
  auto* parts = static_cast<float*>(workspace);
  with_type(problem().dtype, [&](auto zero) {
    using T = decltype(zero);
    const Kernel<T> kernel = kernel_of<T>(problem(), tile_);
    kernel.function<<<dim3(grid.x, grid.y), kernel.threads, kernel.shared_bytes, stream>>>(
        gemm_, tile_.splits, static_cast<const T*>(x), static_cast<const T*>(packed), bias, static_cast<T*>(y), parts);
    check_launch("implicit_gemm");
    note_paths(problem(), tile_);
    if (tile_.splits > 1) add_parts(gemm_, tile_.splits, parts, bias, static_cast<T*>(y), stream);
  });
}

}  // namespace

std::string ImplicitGemmMma::missing(const cudaDeviceProp& device) {
  if (device.major >= 8) return "";
  return "sm_" + std::to_string(device.major * 10 + device.minor) + ": its tensor cores' instructions are sm_80's";
}

std::string ImplicitGemmMma::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  constexpr std::int64_t kLeastColumns = 4;
  const bool tensor = p.dtype == DType::f32 ? p.math == Math::tf32 : p.math == Math::strict;
  if (!tensor)
    return p.dtype == DType::f32 ? "f32: it multiplies f16, bf16, and f32 as tf32 (math tf32)"
                                 : "math other than strict";
  if (p.group_k() < kLeastColumns && p.groups > 1) {
    return std::to_string(p.group_k()) + " output channels a group; a tile of " + std::to_string(kWarpColumns) +
           " would be empty below " + std::to_string(kLeastColumns);
  }
  return implicit_refusal(p);
}

std::unique_ptr<Conv2dPlan> ImplicitGemmMma::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<ImplicitGemmPlan>(problem, device);
}

}  // namespace gable::cuda
