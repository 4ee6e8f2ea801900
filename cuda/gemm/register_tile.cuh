// Device code of register_tile.h: one kernel for each tile and way to gather pixels.
#pragma once

#include "cuda/gemm/implicit.cuh"

namespace gable::cuda::register_tile {

inline constexpr int kDepth = 32;  // of a stage
inline constexpr int kStages = 2;
inline constexpr int kThreadRows = 8;
inline constexpr int kTogether = 2;           // places of the depth that one read covers
inline constexpr int kRowPitch = kDepth + 4;  // of A in shared memory: copies stay aligned, reads free of conflicts
inline constexpr int kPadding = 4;            // packed channels are multiples of it: 16 bytes of f32

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
  static constexpr int kBiasBytes = columns * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = kStages * kStageBytes + kBiasBytes;
  static_assert(kThreads >= columns);
  static_assert(kStages * kStageBytes >= slices / 2 * kWarps * 32 * kSums * static_cast<int>(sizeof(float)));

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
    load_pixels(g, stage);
    load_weights(g, stage);
  }
  __device__ __forceinline__ void load_pixels(const ImplicitGemm& g, float* stage) {
    float* const to = stage + slot() * kRowPitch + lane() * 4;
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

  __device__ __forceinline__ void load_weights(const ImplicitGemm& g, float* stage) {
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

__device__ __forceinline__ void multiply_add(float& sum, float left, float right) {
  asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sum) : "f"(left), "f"(right));
}

/// The products at one place of the depth, `j` of the two in `left`. Between them the thread loads weights of the next
/// place, and at the second of two places the pixels of the next two, so that no product waits for its operands. By
/// hand, so that they stay in this order.
template <typename Tile, int j>
__device__ __forceinline__ void multiply_place(std::uint32_t a_next, std::uint32_t b_next,
                                               const float (&left)[kThreadRows][kTogether],
                                               const float (&weights)[Tile::kQuads][4],
                                               float (&left_next)[kThreadRows][kTogether],
                                               float (&weights_next)[Tile::kQuads][4],
                                               float (&sums)[Tile::kQuads][kThreadRows][4]) {
  constexpr int kFloat = sizeof(float), kColumns = Tile::kThreadColumns;
  constexpr int kLoads = Tile::kQuads + (j == 1 ? kThreadRows : 0), kEvery = kThreadRows * kColumns / kLoads;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int at = 0; at < kColumns; ++at) {
      const int c = column_at<kColumns>(i % 2 == 0 ? at : kColumns - 1 - at, 1 - j);
      multiply_add(sums[c / 4][i][c % 4], left[i][j], weights[c / 4][c % 4 ^ 1]);
      const int done = i * kColumns + at + 1, load = done / kEvery - 1;
      if (done % kEvery != 0 || load >= kLoads) continue;
      if (load < Tile::kQuads) {
        load_shared(b_next + load * 4 * Tile::kLanesAcross * kFloat, weights_next[load]);
      } else {
        const int row = load - Tile::kQuads;
        load_shared(a_next + Tile::kLanesDown * row * kRowPitch * kFloat, left_next[row]);
      }
    }
  }
}

/// One share of a stage's products: operands of one place, or pixels of two, then their products.
template <typename Tile>
__device__ __forceinline__ void multiply_in_turn(std::uint32_t a, std::uint32_t b,
                                                 float (&sums)[Tile::kQuads][kThreadRows][4]) {
  constexpr int kFloat = sizeof(float);
#pragma unroll 2
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

/// The same with operands a place ahead.
template <typename Tile>
__device__ __forceinline__ void multiply_ahead(std::uint32_t a, std::uint32_t b,
                                               float (&sums)[Tile::kQuads][kThreadRows][4]) {
  constexpr int kFloat = sizeof(float), kPlaces = kDepth / Tile::kSlices, kRow = Tile::kColumns * kFloat;
  static_assert(kPlaces % (2 * kTogether) == 0);
  float left[2][kThreadRows][kTogether], weights[2][Tile::kQuads][4];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) load_shared(a + Tile::kLanesDown * i * kRowPitch * kFloat, left[0][i]);
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) load_shared(b + q * 4 * Tile::kLanesAcross * kFloat, weights[0][q]);
#pragma unroll 2
  for (int k = 0; k < kPlaces; k += 2 * kTogether) {
    const int next = k + 2 * kTogether == kPlaces ? 0 : k + 2 * kTogether;  // nothing uses what is loaded last
    multiply_place<Tile, 0>(0, b + (k + 1) * kRow, left[0], weights[0], left[1], weights[1], sums);
    multiply_place<Tile, 1>(a + (k + 2) * kFloat, b + (k + 2) * kRow, left[0], weights[1], left[1], weights[0], sums);
    multiply_place<Tile, 0>(0, b + (k + 3) * kRow, left[1], weights[0], left[0], weights[1], sums);
    multiply_place<Tile, 1>(a + next * kFloat, b + next * kRow, left[1], weights[1], left[0], weights[0], sums);
  }
}

/// Adds a share of one stage's products to the thread's accumulators.
///
/// An FFMA takes longer if its operands come from one register bank (even, odd). Sums lie in aligned quads for their
/// stores and weights for their loads, so weights are packed with neighbours swapped: column c is multiplied by the
/// weight in register c ^ 1, of the other parity. Rows go to and fro, so that the weight is reused where the pixel
/// changes; it changes at columns whose sums lie in the bank that the pixel does not. 128 sums take operands in turn.
template <typename Tile>
__device__ __forceinline__ void multiply(std::uint32_t a, std::uint32_t b,
                                         float (&sums)[Tile::kQuads][kThreadRows][4]) {
  if constexpr (Tile::kQuads > 2) {
    multiply_in_turn<Tile>(a, b, sums);
  } else {
    multiply_ahead<Tile>(a, b, sums);
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

/// Pool, bias and activation of a thread's sums. `bias` is that of its first column, in shared memory.
template <typename Tile>
__device__ __forceinline__ void finish(const ImplicitGemm& g, const float* bias,
                                       float (&sums)[Tile::kQuads][kThreadRows][4]) {
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    if (g.pooled) pool_rows(sums[q]);
    const float4 v = *reinterpret_cast<const float4*>(bias + q * 4 * Tile::kLanesAcross);
#pragma unroll
    for (float(&row)[4] : sums[q]) row[0] += v.x, row[1] += v.y, row[2] += v.z, row[3] += v.w;
  }
  activate_all(reinterpret_cast<float(&)[Tile::kSums]>(sums), g.activation);
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
  float* const added = stages + kStages * Tile::kStageFloats;  // the bias
  if (threadIdx.x < Tile::kColumns) {
    const int at = place.column + static_cast<int>(threadIdx.x);
    const bool valid = g.bias && at < g.columns;
    copy_async<4>(added + threadIdx.x, valid ? bias + place.group * g.columns + at : x, valid);
  }
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
  }
  if (slice > 0) return;
  const int thread_row = place.row + row + lane_down<Tile>(lane) * kThreadRows;
  if (splits == 1) finish<Tile>(g, added + column, sums);
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    const int at = place.column + column + q * 4 * Tile::kLanesAcross;
    if (splits == 1) {
      store_rows(g, y, thread_row, place.group, at, sums[q]);
    } else {
      store_part(g, parts, place.part, thread_row, place.group, at, sums[q]);
    }
  }
}

using Kernel = GemmKernel<void(ImplicitGemm, int, const float*, const float*, const float*, float*, float*)>;

using Wide = Tile<128, 128, 4, 1, 2>;
using Tall = Tile<128, 64, 2, 1, 3>;
using Broad = Tile<64, 128, 2, 1, 3>;
using Small = Tile<64, 64, 2, 1, 6>;
using SmallHalves = Tile<64, 64, 2, 2, 3>;
using SmallQuarters = Tile<64, 64, 2, 4, 1>;

template <typename Tile, Gather gather>
Kernel compiled() {
  return {register_tile_kernel<Tile, gather>, Tile::kThreads, Tile::kSharedBytes};
}

/// Wide tiles, compiled with options of their own.
Kernel wide_kernel(Gather gather);

}  // namespace gable::cuda::register_tile
