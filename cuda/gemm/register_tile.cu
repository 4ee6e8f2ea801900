// See register_tile.h.
#include "cuda/gemm/register_tile.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/gemm/implicit.cuh"
#include "cuda/gemm/packed_weights.h"

namespace gable::cuda {
namespace {

constexpr int kDepth = 32;  // of a stage
constexpr int kStages = 2;
constexpr int kThreadRows = 8;
constexpr int kTogether = 2;           // places of the depth that one read covers
constexpr int kRowPitch = kDepth + 4;  // of A in shared memory: copies stay aligned, reads free of conflicts
constexpr int kPadding = 4;            // packed channels are multiples of it: 16 bytes of f32

/// A block's tile. `quads`: runs of four columns that a thread computes; `slices`: warps that share a warp's tile, each
/// with its part of a stage's depth; `resident`: blocks that a multiprocessor's registers hold.
template <int rows, int columns, int quads, int slices, int resident>
struct Tile {
  static constexpr int kRows = rows, kColumns = columns, kQuads = quads, kSlices = slices, kResident = resident;
  static constexpr int kThreadColumns = 4 * quads;
  static constexpr int kLanesAcross = 64 / kThreadColumns < 8 ? 4 : 8, kLanesDown = 32 / kLanesAcross;
  static constexpr int kWarpRows = kLanesDown * kThreadRows, kWarpColumns = kLanesAcross * kThreadColumns;
  static constexpr int kWarpsAcross = columns / kWarpColumns, kWarps = rows / kWarpRows * kWarpsAcross;
  static constexpr int kThreads = kWarps * slices * 32;
  static constexpr int kStageFloats = rows * kRowPitch + kDepth * columns;
  static constexpr int kStageBytes = kStageFloats * static_cast<int>(sizeof(float));
  static constexpr int kSums = kThreadRows * kThreadColumns;  // of a thread
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static_assert(kSharedBytes >= slices / 2 * kWarps * 32 * kSums * static_cast<int>(sizeof(float)));

  /// Which row of the product lies in row `slot` of A's tile: a thread reads slots kLanesDown apart, without bank
  /// conflicts, and gets eight neighbouring rows, two windows of a pool.
  __device__ static __forceinline__ int row_of_slot(int slot) {
    return slot / kWarpRows * kWarpRows + slot % kLanesDown * kThreadRows + slot % kWarpRows / kLanesDown;
  }
};

/// A lane's place in a warp's tile. Lanes 2 and 1 apart share the weights' and the pixels' addresses, for which shared
/// memory serves half a warp, or all of it, in one cycle.
template <typename Tile>
__device__ __forceinline__ int lane_across(int lane) {
  return Tile::kLanesAcross == 8 ? (lane & 1) | (lane >> 1 & 6) : (lane & 1) | (lane >> 1 & 2);
}
template <typename Tile>
__device__ __forceinline__ int lane_down(int lane) {
  return Tile::kLanesDown == 4 ? (lane >> 1 & 1) | (lane >> 3 & 2) : (lane >> 1 & 1) | (lane >> 2 & 6);
}

/// How pixels come in: `elements` one f32 at a time; `chunks` of four channels, which may belong to different taps;
/// `stages`, where a whole stage of the depth belongs to one tap.
enum class Gather { elements, chunks, stages };

template <typename Tile, Gather gather>
class Loader {
 public:
  static constexpr int kThreads = Tile::kThreads, kRows = Tile::kRows, kColumns = Tile::kColumns;
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
    for (int i = 0; i < kA; ++i) pixels_[i] = row_pixel(g, row + Tile::row_of_slot(slot() + i * kSlots), group);
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

/// The order in which a row's products are computed; its ends are columns of parity `ends`.
template <int columns>
constexpr int column_at(int position, int ends) {
  if (position >= columns - 2) return columns - 2 + (position == columns - 1 ? ends : 1 - ends);
  return position / 2 * 2 + (position % 2 == 0 ? ends : 1 - ends);
}

/// Adds a share of one stage's products to the thread's accumulators.
///
/// An FFMA a cycle is possible only if its operands come from different register banks (even, odd), one of the three
/// being reused from the instruction before. Sums lie in aligned quads for their stores and weights for their loads, so
/// weights are packed with neighbours swapped: column c is multiplied by the weight in register c ^ 1, of the other
/// parity. Rows go to and fro, so that the weight is reused where the pixel changes; it changes at columns whose sums
/// lie in the bank that the pixel does not. The assembler keeps this order only with -O1 (CMakeLists.txt). The loop is
/// unrolled in part only: across its end sums must return to their registers, and so to their banks.
template <typename Tile>
__device__ __forceinline__ void multiply(std::uint32_t a, std::uint32_t b,
                                         float (&sums)[Tile::kQuads][kThreadRows][4]) {
  constexpr int kFloat = sizeof(float), kUnroll = Tile::kQuads > 2 ? 2 : 4;
#pragma unroll kUnroll
  for (int k = 0; k < kDepth / Tile::kSlices; k += kTogether) {
    float left[kThreadRows][kTogether];
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) load_shared(a + (Tile::kLanesDown * i * kRowPitch + k) * kFloat, left[i]);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      float weights[Tile::kQuads][4];
#pragma unroll
      for (int q = 0; q < Tile::kQuads; ++q) {
        load_shared(b + ((k + j) * Tile::kColumns + q * 4 * Tile::kLanesAcross) * kFloat, weights[q]);
      }
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
        for (int at = 0; at < Tile::kThreadColumns; ++at) {
          const int c = column_at<Tile::kThreadColumns>(i % 2 == 0 ? at : Tile::kThreadColumns - 1 - at, 1 - j);
          float& sum = sums[c / 4][i][c % 4];
          sum = fmaf(left[i][j], weights[c / 4][c % 4 ^ 1], sum);
        }
      }
    }
  }
}

/// Adds the sums of the slices, by way of the stages' shared memory, to those of the first.
template <typename Tile>
__device__ __forceinline__ void add_slices(float4* shared, int slice, int thread,
                                           float (&sums)[Tile::kQuads][kThreadRows][4]) {
  constexpr int kTileThreads = Tile::kWarps * 32;
#pragma unroll
  for (int half = Tile::kSlices / 2; half >= 1; half /= 2) {
    __syncthreads();
    float4* const at = shared + (slice % half) * kTileThreads * (Tile::kSums / 4) + thread;
#pragma unroll
    for (int q = 0; q < Tile::kQuads; ++q) {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const float(&v)[4] = sums[q][i];
        if (slice >= half && slice < 2 * half) {
          at[(q * kThreadRows + i) * kTileThreads] = make_float4(v[0], v[1], v[2], v[3]);
        }
      }
    }
    __syncthreads();
    if (slice >= half) continue;
#pragma unroll
    for (int q = 0; q < Tile::kQuads; ++q) {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const float4 v = at[(q * kThreadRows + i) * kTileThreads];
        float(&sum)[4] = sums[q][i];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
  }
}

/// Grid: x the tiles, columns first, since tiles of the same rows share pixels in the L2; y groups × parts of the
/// depth.
template <typename Tile, Gather gather>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kResident)
    register_tile_kernel(ImplicitGemm g, int splits, const float* x, const float* packed, const float* bias, float* y,
                         float* parts) {
  extern __shared__ float4 memory[];
  auto* stages = reinterpret_cast<float*>(memory);
  const BlockPlace place = block_place<Tile::kRows, Tile::kColumns>(g, splits, kDepth);
  Loader<Tile, gather> loader(g, x, packed, place.row, place.column, place.group, place.first * kDepth);
  wait_for_previous_kernel();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (place.first + s < place.last) loader.load(g, stages + s * Tile::kStageFloats);
    commit_copies();
  }
  const int thread = static_cast<int>(threadIdx.x) % (Tile::kWarps * 32), warp = thread / 32, lane = thread % 32;
  const int slice = static_cast<int>(threadIdx.x) / (Tile::kWarps * 32), depth = slice * (kDepth / Tile::kSlices);
  const int row = warp / Tile::kWarpsAcross * Tile::kWarpRows;
  const int column = warp % Tile::kWarpsAcross * Tile::kWarpColumns + lane_across<Tile>(lane) * 4;
  const std::uint32_t a_at = shared_address(stages + (row + lane_down<Tile>(lane)) * kRowPitch + depth);
  const std::uint32_t b_at = shared_address(stages + Tile::kRows * kRowPitch + depth * Tile::kColumns + column);
  float sums[Tile::kQuads][kThreadRows][4] = {};  // quads of columns lie 4 * kLanesAcross apart
  int now = 0;
  for (int step = place.first; step < place.last; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    const int next = now == 0 ? kStages - 1 : now - 1;
    if (step + kStages - 1 < place.last) loader.load(g, stages + next * Tile::kStageFloats);
    commit_copies();
    multiply<Tile>(a_at + now * Tile::kStageBytes, b_at + now * Tile::kStageBytes, sums);
    now = now + 1 == kStages ? 0 : now + 1;
  }
  if constexpr (Tile::kSlices > 1) {
    add_slices<Tile>(memory, slice, thread, sums);
    if (slice > 0) return;
  }
  const int thread_row = place.row + row + lane_down<Tile>(lane) * kThreadRows;
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    const int at = place.column + column + q * 4 * Tile::kLanesAcross;
    if (splits == 1) {
      store_rows(g, bias, y, thread_row, place.group, at, sums[q]);
    } else {
      store_part(g, parts, place.part, thread_row, place.group, at, sums[q]);
    }
  }
}

using Kernel = GemmKernel<void(ImplicitGemm, int, const float*, const float*, const float*, float*, float*)>;

// In the order of RegisterTile::tiles().
using Wide = Tile<128, 128, 4, 1, 2>;
using Tall = Tile<128, 64, 2, 1, 3>;
using Broad = Tile<64, 128, 2, 1, 3>;
using Small = Tile<64, 64, 2, 1, 6>;
using SmallHalves = Tile<64, 64, 2, 2, 3>;
using SmallQuarters = Tile<64, 64, 2, 4, 1>;

template <typename Tile>
constexpr GemmCandidate candidate(double rate, double stage, double single_output = 0) {
  return {Tile::kRows, Tile::kColumns, Tile::kThreads / 32, Tile::kResident, Tile::kSharedBytes,
          rate,        stage,          single_output};
}
constexpr GemmCandidate kCandidates[] = {candidate<Wide>(0.75, 5889, 1.1),    candidate<Tall>(0.731, 3373),
                                         candidate<Broad>(0.746, 3373),       candidate<Small>(0.66, 3373),
                                         candidate<SmallHalves>(0.688, 1748), candidate<SmallQuarters>(0.56, 1375)};

template <typename Tile, Gather gather>
Kernel compiled() {
  return {register_tile_kernel<Tile, gather>, Tile::kThreads, Tile::kSharedBytes};
}

template <Gather gather>
Kernel kernel_of(int candidate) {
  switch (candidate) {
    case 0:
      return compiled<Wide, gather>();
    case 1:
      return compiled<Tall, gather>();
    case 2:
      return compiled<Broad, gather>();
    case 3:
      return compiled<Small, gather>();
    case 4:
      return compiled<SmallHalves, gather>();
    default:
      return compiled<SmallQuarters, gather>();
  }
}

Gather gather_of(const Conv2dProblem& p) {
  if (p.group_c() % kDepth == 0) return Gather::stages;
  return p.c % kPadding == 0 && p.group_c() % kPadding == 0 ? Gather::chunks : Gather::elements;
}

Kernel kernel_of(const Conv2dProblem& p, const GemmTile& tile) {
  const Gather gather = gather_of(p);
  return gather == Gather::stages   ? kernel_of<Gather::stages>(tile.candidate)
         : gather == Gather::chunks ? kernel_of<Gather::chunks>(tile.candidate)
                                    : kernel_of<Gather::elements>(tile.candidate);
}

/// Of an H200, fitted to every tile and split of half of 247 layers; on the other half the picks take 1.03 of the best.
GemmCosts costs_of(const Conv2dProblem& p) {
  const Gather gather = gather_of(p);
  return {.fma_per_cycle = 128,
          .clock = 1.755e9,
          .row = gather == Gather::stages   ? 0.0
                 : gather == Gather::chunks ? 0.03
                                            : 9.3,
          .block = 3410,
          .output = 0.084,
          .last_wave = 0.45,
          .start = 0.5e-6,
          .bytes_per_second = 2.8e12,
          .second_start = 1.2e-6,
          .part_bytes_per_second = 3.5e12};
}

GemmTile choose_tile(const Conv2dProblem& p, const ImplicitGemm& gemm, const cudaDeviceProp& device,
                     const GemmTileOverrides& overrides = {}) {
  return choose_tile(gemm, kCandidates, kDepth, costs_of(p), device, overrides);
}

void note_paths(const Conv2dProblem& p, const GemmTile& tile) {
  constexpr Path kPaths[] = {Path::register_tile_128x128, Path::register_tile_128x64, Path::register_tile_64x128,
                             Path::register_tile_64x64,   Path::register_tile_halves, Path::register_tile_quarters};
  note_path(kPaths[tile.candidate]);
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

/// An early start pays for short kernels alone (1.08 to 1.14 times as fast up to 15 us on an H200): blocks that start
/// beside the last ones of the kernel before share multiprocessors while others idle, which takes up to 1.4 times as
/// long.
constexpr double kShort = 15e-6;

class RegisterTilePlan final : public PackedOrderPlan {
 public:
  RegisterTilePlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const GemmTileOverrides& overrides);

  Conv2dDescription description() const override;
  std::size_t workspace_bytes() const override { return parts_bytes(gemm_, tile_.splits); }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  ImplicitGemm gemm_;
  GemmTile tile_;
  bool overlaps_;  // launches may start before the kernel before them has ended
};

RegisterTilePlan::RegisterTilePlan(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                   const GemmTileOverrides& overrides)
    : PackedOrderPlan(problem, order_of(problem)),
      gemm_(implicit_gemm_of(problem, kPadding, kPadding)),
      tile_(choose_tile(problem, gemm_, device, overrides)),
      overlaps_(device.major >= 9 && tile_.seconds < kShort) {
  kernel_of(problem, tile_).prepare();
}

Conv2dDescription RegisterTilePlan::description() const {
  constexpr const char* kShares[] = {", 8x16 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread",
                                     ", 8x8 a thread of half a stage",
                                     ", 8x8 a thread of a quarter of a stage"};
  return {.kernel = "register_tile",
          .tile = tile_text(tile_) + kShares[tile_.candidate],
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
  const LaunchShape shape{dim3(grid.x, grid.y), kernel.threads, kernel.shared_bytes, overlaps_};
  cuda::launch(kernel.function, shape, stream, gemm_, tile_.splits, source, static_cast<const float*>(packed), bias, to,
               parts);
  note_paths(problem(), tile_);
  if (tile_.splits == 1) return;
  note_path(Path::register_tile_split);
  add_parts(gemm_, tile_.splits, parts, bias, to, stream);
}

}  // namespace

std::string RegisterTile::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  constexpr std::int64_t kMinColumns = 4;
  if (p.dtype != DType::f32 || p.math == Math::tf32) {
    return std::string(name_of(p.dtype)) + (p.math == Math::tf32 ? " as tf32" : "") +
           ": it computes f32 on the f32 units";
  }
  if (p.group_k() < kMinColumns && p.groups > 1) {
    return std::to_string(p.group_k()) + " output channels a group; a tile of 64 would be empty below " +
           std::to_string(kMinColumns);
  }
  return implicit_refusal(p);
}

double RegisterTile::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return choose_tile(p, implicit_gemm_of(p, kPadding, kPadding), device).seconds;
}

std::unique_ptr<Conv2dPlan> RegisterTile::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return make(problem, device, {});
}

std::unique_ptr<Conv2dPlan> RegisterTile::make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                               const GemmTileOverrides& overrides) {
  return std::make_unique<RegisterTilePlan>(problem, device, overrides);
}

std::span<const GemmCandidate> RegisterTile::tiles() { return kCandidates; }

}  // namespace gable::cuda
