// See register_tile.h.
#include "cuda/gemm/register_tile.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/gemm/implicit.cuh"
#include "cuda/gemm/packed_weights.h"

namespace gable::cuda {
namespace {

constexpr int kDepth = 32;  // of a stage
constexpr int kStages = 2;
constexpr int kWarpRows = 32, kWarpColumns = 64;
constexpr int kThreadRows = 8;
constexpr int kTogether = 2;              // places of the depth that one read covers
constexpr int kRowPitch = kDepth + 4;     // of A in shared memory: copies stay aligned, reads free of conflicts
constexpr int kPadding = 4;               // packed channels are multiples of it: 16 bytes of f32
constexpr int kThreadsOfProcessor = 384;  // 168 registers a thread

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

/// How pixels come in: `elements` one f32 at a time; `chunks` of four channels, which may belong to different taps;
/// `stages`, where a whole stage of the depth belongs to one tap.
enum class Gather { elements, chunks, stages };

template <int kRows, int kColumns, Gather gather>
class Loader {
 public:
  static constexpr int kThreads = threads_of(kRows, kColumns);
  static constexpr int kLanes = 4;                  // threads that share a row
  static constexpr int kSpan = kLanes * 4;          // depth that one pass over a row covers
  static constexpr int kSlots = kThreads / kLanes;  // rows that one pass covers
  static constexpr int kA = kRows / kSlots;
  static constexpr int kB = kDepth * kColumns / 4 / kThreads;
  static_assert(kA * kSlots == kRows && kB * kThreads == kDepth * kColumns / 4);

  __device__ Loader(const ImplicitGemm& g, const float* x, const float* packed, int row, int column, int group,
                    int depth)
      : x_(x), cursor_(g, depth + lane() * 4), depth_(depth) {
#pragma unroll
    for (int i = 0; i < kA; ++i) pixels_[i] = row_pixel(g, row + row_of_slot(slot() + i * kSlots), group);
    b_row_ = static_cast<int>(threadIdx.x) / (kColumns / 4);
    const int b_column = static_cast<int>(threadIdx.x) % (kColumns / 4) * 4;
    b_valid_ = column + b_column < g.padded_k;
    b_ = packed + (static_cast<std::int64_t>(group) * g.depth + depth + b_row_) * g.padded_k + column + b_column;
    b_to_ = b_row_ * kColumns + b_column;
  }

  /// The next stage of the depth.
  __device__ __forceinline__ void load(const ImplicitGemm& g, float* stage) {
    load_pixels(g, stage + slot() * kRowPitch + lane() * 4);
    float* b_stage = stage + kRows * kRowPitch + b_to_;
    constexpr int kBRows = kThreads / (kColumns / 4);
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      const bool valid = b_valid_ && depth_ + b_row_ + i * kBRows < g.depth;
      copy_async<16>(b_stage + i * kBRows * kColumns, valid ? b_ + i * kBRows * g.padded_k : x_, valid);
    }
    depth_ += kDepth;
    b_ += kDepth * g.padded_k;
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ static int slot() { return static_cast<int>(threadIdx.x) / kLanes; }

  __device__ __forceinline__ void load_pixels(const ImplicitGemm& g, float* to) {
    if constexpr (gather == Gather::stages) {
#pragma unroll
      for (int i = 0; i < kA; ++i) {
        int offset;
        const bool inside = cursor_.locate(g, pixels_[i], offset);
        const float* from = inside ? x_ + offset : x_;
#pragma unroll
        for (int k = 0; k < kDepth; k += kSpan) copy_async<16>(to + i * kSlots * kRowPitch + k, from + k, inside);
      }
      cursor_.advance(g, kDepth);
    } else {
#pragma unroll
      for (int k = 0; k < kDepth; k += kSpan) {
#pragma unroll
        for (int i = 0; i < kA; ++i) {
          copy_pixel<float, gather == Gather::chunks>(g, x_, pixels_[i], cursor_, to + i * kSlots * kRowPitch + k);
        }
        cursor_.advance(g, kSpan);
      }
    }
  }

  const float* x_;
  const float* b_;
  RowPixel pixels_[kA];
  DepthCursor cursor_;
  int depth_, b_row_, b_to_;
  bool b_valid_;
};

// By hand, so that they stay as wide as they are written.
__device__ __forceinline__ void load_shared(std::uint32_t address, float (&to)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(address));
}

__device__ __forceinline__ void load_shared(std::uint32_t address, float (&to)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(address));
}

/// Adds one stage's products to the thread's accumulators.
///
/// An FFMA a cycle is possible only if its operands come from different register banks (even, odd), one of the three
/// being reused from the instruction before. Sums lie in aligned quads for their stores and weights for their loads, so
/// weights are packed with neighbours swapped: column c is multiplied by the weight in register c ^ 1, of the other
/// parity. The loop is unrolled in part only: across its end sums must return to their registers, and so to their
/// banks.
template <int kColumns>
__device__ __forceinline__ void multiply(std::uint32_t a, std::uint32_t b, float (&sums)[2][kThreadRows][4]) {
  constexpr int kFloat = sizeof(float);
#pragma unroll 4
  for (int k = 0; k < kDepth; k += kTogether) {
    float left[kThreadRows][kTogether];
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) load_shared(a + (4 * i * kRowPitch + k) * kFloat, left[i]);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      float weights[2][4];
      load_shared(b + (k + j) * kColumns * kFloat, weights[0]);
      load_shared(b + ((k + j) * kColumns + kWarpColumns / 2) * kFloat, weights[1]);
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          float& sum = sums[c / 4][i][c % 4];
          sum = fmaf(left[i][j], weights[c / 4][c % 4 ^ 1], sum);
        }
      }
    }
  }
}

/// Grid: x the tiles, columns first, since tiles of the same rows share pixels in the L2; y groups × parts of the
/// depth.
template <int kRows, int kColumns, Gather gather>
__global__ void __launch_bounds__(threads_of(kRows, kColumns), kThreadsOfProcessor / threads_of(kRows, kColumns))
    register_tile_kernel(ImplicitGemm g, int splits, const float* x, const float* packed, const float* bias, float* y,
                         float* parts) {
  extern __shared__ float4 memory[];
  auto* stages = reinterpret_cast<float*>(memory);
  constexpr int kStage = stage_floats(kRows, kColumns);
  const BlockPlace place = block_place<kRows, kColumns>(g, splits, kDepth);
  Loader<kRows, kColumns, gather> loader(g, x, packed, place.row, place.column, place.group, place.first * kDepth);
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (place.first + s < place.last) loader.load(g, stages + s * kStage);
    commit_copies();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / (kColumns / kWarpColumns) * kWarpRows;
  const int warp_column = warp % (kColumns / kWarpColumns) * kWarpColumns;
  const std::uint32_t a_at = shared_address(stages + (warp_row + lane / 8) * kRowPitch);
  const std::uint32_t b_at = shared_address(stages + kRows * kRowPitch + warp_column + lane % 8 * 4);
  float sums[2][kThreadRows][4] = {};  // columns 0 to 3, and 32 further on
  int now = 0;
  for (int step = place.first; step < place.last; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    const int next = now == 0 ? kStages - 1 : now - 1;
    if (step + kStages - 1 < place.last) loader.load(g, stages + next * kStage);
    commit_copies();
    constexpr int kStageBytes = kStage * static_cast<int>(sizeof(float));
    multiply<kColumns>(a_at + now * kStageBytes, b_at + now * kStageBytes, sums);
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
  const int threads = threads_of(rows, columns);
  return {rows, columns, threads / 32, kThreadsOfProcessor / threads, shared_bytes(rows, columns), rate};
}
constexpr GemmCandidate kCandidates[] = {candidate(128, 64, 1.0), candidate(64, 128, 1.0), candidate(64, 64, 0.95)};
constexpr double kFmaPerCycle = 128;  // on a multiprocessor

using Kernel = GemmKernel<void(ImplicitGemm, int, const float*, const float*, const float*, float*, float*)>;

template <int kRows, int kColumns, Gather gather>
Kernel compiled() {
  return {register_tile_kernel<kRows, kColumns, gather>, threads_of(kRows, kColumns), shared_bytes(kRows, kColumns)};
}

template <Gather gather>
Kernel kernel_of(const GemmTile& tile) {
  if (tile.columns == 128) return compiled<64, 128, gather>();
  return tile.rows == 128 ? compiled<128, 64, gather>() : compiled<64, 64, gather>();
}

Gather gather_of(const Conv2dProblem& p) {
  if (p.group_c() % kDepth == 0) return Gather::stages;
  return p.c % kPadding == 0 && p.group_c() % kPadding == 0 ? Gather::chunks : Gather::elements;
}

Kernel kernel_of(const Conv2dProblem& p, const GemmTile& tile) {
  const Gather gather = gather_of(p);
  return gather == Gather::stages   ? kernel_of<Gather::stages>(tile)
         : gather == Gather::chunks ? kernel_of<Gather::chunks>(tile)
                                    : kernel_of<Gather::elements>(tile);
}

void note_paths(const Conv2dProblem& p, const GemmTile& tile) {
  note_path(tile.columns == 128 ? Path::register_tile_64x128
            : tile.rows == 128  ? Path::register_tile_128x64
                                : Path::register_tile_64x64);
  switch (gather_of(p)) {
    case Gather::stages:
      return note_path(Path::register_tile_stages);
    case Gather::chunks:
      return note_path(Path::register_tile_chunks);
    case Gather::elements:
      return note_path(Path::register_tile_elements);
  }
}

/// The order of packed weights.
PackedOrder order_of(const Conv2dProblem& p) {
  PackedOrder order = packed_order(p, kPadding, kPadding);
  order.swapped = true;
  return order;
}

class RegisterTilePlan final : public PackedOrderPlan {
 public:
  RegisterTilePlan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  std::size_t workspace_bytes() const override { return parts_bytes(gemm_, tile_.splits); }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  ImplicitGemm gemm_;
  GemmTile tile_;
};

RegisterTilePlan::RegisterTilePlan(const Conv2dProblem& problem, const cudaDeviceProp& device)
    : PackedOrderPlan(problem, order_of(problem)),
      gemm_(implicit_gemm_of(problem, kPadding, kPadding)),
      tile_(choose_tile(gemm_, kCandidates, kDepth, kFmaPerCycle, device)) {
  kernel_of(problem, tile_).prepare();
}

Conv2dDescription RegisterTilePlan::description() const {
  return {.kernel = "register_tile",
          .tile = tile_text(tile_) + ", 8x8 a thread",
          .staging = "two stages of 32 in shared memory",
          .fusion = "pool, bias and activation in registers"};
}

void RegisterTilePlan::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                           cudaStream_t stream) const {
  const auto* source = static_cast<const float*>(x);
  auto* parts = static_cast<float*>(workspace);
  auto* to = static_cast<float*>(y);
  const Kernel kernel = kernel_of(problem(), tile_);
  const GemmGrid grid = grid_of(gemm_, tile_);
  kernel.function<<<dim3(grid.x, grid.y), kernel.threads, kernel.shared_bytes, stream>>>(
      gemm_, tile_.splits, source, static_cast<const float*>(packed), bias, to, parts);
  check_launch("register_tile");
  note_paths(problem(), tile_);
  if (tile_.splits == 1) return;
  note_path(Path::register_tile_split);
  add_parts(gemm_, tile_.splits, parts, bias, to, stream);
}

}  // namespace

std::string RegisterTile::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  constexpr std::int64_t kMinColumns = 4;
  if (p.dtype != DType::f32 || p.math != Math::strict) {
    return std::string(name_of(p.dtype)) + (p.math == Math::strict ? "" : " on the tensor cores") +
           ": it computes strict f32";
  }
  if (p.group_k() < kMinColumns && p.groups > 1) {
    return std::to_string(p.group_k()) + " output channels a group; a tile of " + std::to_string(kWarpColumns) +
           " would be empty below " + std::to_string(kMinColumns);
  }
  return implicit_refusal(p);
}

double RegisterTile::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  constexpr double kStart = 3e-6, kClock = 1.6e9;  // of an H200 under load
  const GemmTile tile = choose_tile(implicit_gemm_of(p, kPadding, kPadding), kCandidates, kDepth, kFmaPerCycle, device);
  return kStart + tile.cycles / kClock;
}

std::unique_ptr<Conv2dPlan> RegisterTile::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<RegisterTilePlan>(problem, device);
}

}  // namespace gable::cuda
