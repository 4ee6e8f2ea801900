// From a warp's accumulators to the output: bias and activation, rows of the tile in shared memory, and stores of up to
// 16 bytes, whatever the number of channels. Where the depth is split over a cluster, its blocks first add up each
// other's sums, rows / splits of the tile each.
//
// A lane's accumulators of a product of 16x8 are row lane / 4, columns 2 * (lane % 4) and the next, then the same of
// row lane / 4 + 8.
#pragma once

#include "cuda/common/vector_access.cuh"
#include "cuda/gemm/mma_tile.cuh"

namespace gable::cuda {

inline constexpr int kMmaStagedPadding = 8;  // elements from row to row: no two lanes of a store meet in a bank

/// Bytes of the tile's sums, which other blocks of the cluster read, before the bytes of its outputs.
template <typename Tile>
constexpr int mma_sums_bytes() {
  return Tile::kRows * (Tile::kColumns + kMmaStagedPadding) * static_cast<int>(sizeof(float));
}

template <typename T, typename Tile>
constexpr int mma_epilogue_bytes(int cluster) {
  const int outputs = Tile::kRows / cluster * (Tile::kColumns + kMmaStagedPadding) * static_cast<int>(sizeof(T));
  return cluster > 1 ? mma_sums_bytes<Tile>() + outputs : outputs;
}

/// Calls `body` with tile row, tile column, and the sums of two neighbouring columns.
template <typename Tile, typename Body>
__device__ __forceinline__ void for_each_pair(float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4], Body&& body) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / Tile::kWarpsAcross * Tile::kWarpRows + lane / 4;
  const int column = warp % Tile::kWarpsAcross * Tile::kWarpColumns + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kColumnTiles; ++j) {
      body(row + 16 * i, column + 8 * j, sums[i][j][0], sums[i][j][1]);
      body(row + 16 * i + 8, column + 8 * j, sums[i][j][2], sums[i][j][3]);
    }
  }
}

/// Two outputs next to each other; `together`: their address is that of a pair.
template <typename T>
__device__ __forceinline__ void stage_pair(T* to, bool together, float first, float second) {
  if (together) {
    const float pair[2] = {first, second};
    store_vector(to, pair);
  } else {
    to[0] = from_f32<T>(first);
    to[1] = from_f32<T>(second);
  }
}

/// `rows` staged rows go to the output from tile row `first` on, in stores of `bytes`. A thread keeps its columns and
/// steps from row to row. Values are loaded some at a time, because no load passes a store.
template <int bytes, typename T, typename Tile>
__device__ __forceinline__ void store_rows_as(const MmaArguments<T>& a, const BlockPlace& place, const T* staged,
                                              int first, int rows) {
  using Access = typename AccessOf<bytes>::Type;
  constexpr int kElements = bytes / static_cast<int>(sizeof(T)), kAcross = Tile::kColumns / kElements;
  constexpr int kPitch = Tile::kColumns + kMmaStagedPadding, kStep = Tile::kThreads / kAcross, kTogether = 4;
  static_assert(Tile::kThreads % kAcross == 0);
  const ImplicitGemm& g = a.gemm;
  const int log_window = g.pooled ? 2 : 0;
  const int at = static_cast<int>(threadIdx.x) % kAcross * kElements;
  if (at >= g.columns - place.column) return;
  const int valid = min(rows, g.rows - place.row - first) >> log_window;
  int row = static_cast<int>(threadIdx.x) / kAcross;
  T* to = a.y + static_cast<std::int64_t>(((place.row + first) >> log_window) + row) * g.k + place.group * g.columns +
          place.column + at;
  const std::int64_t step = std::int64_t{kStep} * g.k;
  for (; row < valid; row += kTogether * kStep) {
    union {
      Access access;
      T elements[kElements];
    } values[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (row + i * kStep >= valid) break;
      const T* from = staged + ((row + i * kStep) << log_window) * kPitch + at;
      values[i].access = *reinterpret_cast<const Access*>(from);
      if (!g.pooled) continue;
#pragma unroll
      for (int j = 1; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const float other = to_f32(from[j * kPitch + e]);
          values[i].elements[e] = from_f32<T>(max_or_nan(to_f32(values[i].elements[e]), other));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (row + i * kStep >= valid) break;
      *reinterpret_cast<Access*>(to) = values[i].access;
      to += step;
    }
  }
}

template <typename T, typename Tile>
__device__ __forceinline__ void store_staged(const MmaArguments<T>& a, const BlockPlace& place, const T* staged,
                                             int first, int rows) {
  if (a.store_bytes == 16) {
    store_rows_as<16, T, Tile>(a, place, staged, first, rows);
  } else if (a.store_bytes == 8) {
    store_rows_as<8, T, Tile>(a, place, staged, first, rows);
  } else if (a.store_bytes == 4) {
    store_rows_as<4, T, Tile>(a, place, staged, first, rows);
  } else if constexpr (sizeof(T) == 2) {
    store_rows_as<2, T, Tile>(a, place, staged, first, rows);
  }
}

/// The tile has all channels of its pixels, so its rows are one line of bytes; it is staged as such.
template <typename T, typename Tile>
__device__ __forceinline__ void store_line(const MmaArguments<T>& a, const BlockPlace& place, const T* staged) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  const ImplicitGemm& g = a.gemm;
  const int count = min(Tile::kRows, g.rows - place.row) * g.columns, whole = count / kElements;
  T* to = a.y + static_cast<std::int64_t>(place.row) * g.columns;
  for (int i = static_cast<int>(threadIdx.x); i < whole; i += Tile::kThreads) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(staged)[i];
  }
  const int i = whole * kElements + static_cast<int>(threadIdx.x);
  if (i < count) to[i] = staged[i];
}

/// One block's tile.
template <typename T, typename Tile>
__device__ __forceinline__ void store_tile(const MmaArguments<T>& a, const BlockPlace& place, const float* bias,
                                           float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4], T* staged) {
  const ImplicitGemm& g = a.gemm;
  const bool line = a.store_bytes < 16 && g.groups == 1 && g.columns <= Tile::kColumns && !g.pooled;
  const int pitch = line ? g.columns : Tile::kColumns + kMmaStagedPadding;
  const bool together = pitch % 2 == 0;
  for_each_pair<Tile>(sums, [&](int, int column, float& first, float& second) {
    first += bias[column];
    second += bias[column + 1];
  });
  activate_all(reinterpret_cast<float(&)[Tile::kRowTiles * Tile::kColumnTiles * 4]>(sums), g.activation);
  for_each_pair<Tile>(sums, [&](int row, int column, float first, float second) {
    T* to = staged + row * pitch + column;
    if (!line || column + 1 < g.columns) {
      stage_pair(to, together, first, second);
    } else if (column < g.columns) {
      to[0] = from_f32<T>(first);
    }
  });
  __syncthreads();
  if (line) {
    store_line<T, Tile>(a, place, staged);
  } else {
    store_staged<T, Tile>(a, place, staged, 0, Tile::kRows);
  }
}

/// One part's sums, to the workspace.
template <typename T, typename Tile>
__device__ __forceinline__ void store_sums(const MmaArguments<T>& a, const BlockPlace& place,
                                           float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4]) {
  const ImplicitGemm& g = a.gemm;
  for_each_pair<Tile>(sums, [&](int row, int column, float first, float second) {
    const int at = place.column + column;
    if (place.row + row >= g.rows || at >= g.padded_k) return;
    const std::int64_t line =
        (static_cast<std::int64_t>(place.part) * g.rows + place.row + row) * g.groups + place.group;
    *reinterpret_cast<float2*>(a.parts + line * g.padded_k + at) = make_float2(first, second);
  });
}

// ---- clusters (sm_90 and later) ----
__device__ __forceinline__ void sync_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// Four floats at this address in the shared memory of the cluster's block `rank`.
__device__ __forceinline__ float4 load_remote(std::uint32_t address, int rank) {
  float4 v{};
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}\n"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
#endif
  return v;
}

/// The bias in shared memory, of the tile's columns or of its rows.
enum class MmaBias { of_columns, of_rows };

/// A block's part of a tile whose depth is split over a cluster, and what it finishes its outputs with.
struct ClusterPart {
  int splits, part;
  const float* bias;
  Activation activation;
};

/// Outputs of a block in shared memory: `rows` rows from the tile's row `first` on.
template <typename T>
struct StagedRows {
  const T* values;
  int first, rows;
};

/// The blocks of a cluster add up each other's sums, rows / splits of the tile each, through their shared memory.
template <typename T, typename Tile, MmaBias bias_of>
__device__ __forceinline__ StagedRows<T> add_up_cluster(const ClusterPart& c,
                                                        float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4],
                                                        unsigned char* shared) {
  constexpr int kPitch = Tile::kColumns + kMmaStagedPadding, kQuads = Tile::kColumns / 4;
  auto* mine = reinterpret_cast<float*>(shared);
  for_each_pair<Tile>(sums, [&](int row, int column, float first, float second) {
    *reinterpret_cast<float2*>(mine + row * kPitch + column) = make_float2(first, second);
  });
  sync_cluster();
  auto* staged = reinterpret_cast<T*>(shared + mma_sums_bytes<Tile>());
  const int rows = Tile::kRows / c.splits, first = c.part * rows;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kQuads; i += Tile::kThreads) {
    const int row = i / kQuads, at = i % kQuads * 4;
    const std::uint32_t address = shared_address(mine + (first + row) * kPitch + at);
    constexpr bool kRows = bias_of == MmaBias::of_rows;
    const float* const bias = c.bias + (kRows ? first + row : at);
    float sum[4] = {bias[0], bias[kRows ? 0 : 1], bias[kRows ? 0 : 2], bias[kRows ? 0 : 3]};
#pragma unroll 4
    for (int rank = 0; rank < c.splits; ++rank) {
      const float4 v = load_remote(address, rank);
      sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
    activate_all(sum, c.activation);
    store_vector(staged + row * kPitch + at, sum);
  }
  sync_cluster();  // the others have read this block's sums, and all threads' outputs are staged
  return {staged, first, rows};
}

/// The tile of a cluster.
template <typename T, typename Tile>
__device__ __forceinline__ void store_tile_of_cluster(const MmaArguments<T>& a, const BlockPlace& place,
                                                      const float* bias,
                                                      float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4],
                                                      unsigned char* shared) {
  const ClusterPart part{a.splits, place.part, bias, a.gemm.activation};
  const StagedRows<T> staged = add_up_cluster<T, Tile, MmaBias::of_columns>(part, sums, shared);
  store_staged<T, Tile>(a, place, staged.values, staged.first, staged.rows);
}

}  // namespace gable::cuda
