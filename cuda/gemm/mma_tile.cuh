// One block's part of the implicit matrix product on the tensor cores (mma.sync): the ring of stages that cp.async
// fills, and the products of a warp's tile.
//
// A stage is 64 bytes of depth of the tile's rows (pixels) and columns (output channels), 80 bytes from row to row,
// which keeps ldmatrix free of bank conflicts. A warp reads A as 16 rows x 32 bytes and B as 16 columns x 32 bytes for
// each ldmatrix, for products of 16x8x16 (f16, bf16) or 16x8x8 (tf32).
#pragma once

#include "cuda/common/mma.cuh"
#include "cuda/gemm/implicit.cuh"
#include "cuda/gemm/mma_choice.h"

namespace gable::cuda {

inline constexpr int kMmaDepthBytes = 64;                   // of a stage
inline constexpr int kMmaPitchBytes = kMmaDepthBytes + 16;  // 8 rows x 16 bytes then lie in 32 different banks

/// A block's tile, the tile of each of its warps, and the ring's stages.
template <int rows, int columns, int warp_rows, int warp_columns, int stages>
struct MmaTile {
  static constexpr int kRows = rows, kColumns = columns, kWarpRows = warp_rows, kWarpColumns = warp_columns;
  static constexpr int kStages = stages;
  static constexpr int kWarpsAcross = columns / warp_columns;
  static constexpr int kThreads = rows / warp_rows * kWarpsAcross * 32;
  static constexpr int kRowTiles = warp_rows / 16, kColumnTiles = warp_columns / 8;
  static constexpr int kStageBytes = (rows + columns) * kMmaPitchBytes;
  static_assert(kWarpColumns % 16 == 0 && rows * 4 % kThreads == 0 && columns * 4 % kThreads == 0);
};

/// The tile of a candidate, with so many stages.
template <std::size_t candidate, int stages = kMmaCandidates[candidate].stages>
using MmaTileOf = MmaTile<kMmaCandidates[candidate].rows, kMmaCandidates[candidate].columns,
                          kMmaCandidates[candidate].warp_rows, kMmaCandidates[candidate].warp_columns, stages>;

/// What a launch needs beside the product.
template <typename T>
struct MmaArguments {
  ImplicitGemm gemm;
  int splits;       // of the depth: blocks of a cluster, or parts in the workspace
  bool cluster;     // the splits are one cluster
  int copy_bytes;   // the widest copy that divides channels of a pixel: 16, 8, 4, or 2
  int store_bytes;  // the same of the output
  const T *x, *packed;
  const float* bias;
  T* y;
  float* parts;
};

/// 16 bytes of a pixel's channels from copies of `bytes`; zeros past the group's last channel.
template <int bytes, typename T>
__device__ __forceinline__ void copy_narrow(const T* x, int offset, int valid_elements, T* shared) {
  constexpr int kElements = bytes / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < 16 / bytes; ++i) {
    const bool valid = i * kElements < valid_elements;
    copy_async<bytes>(shared + i * kElements, valid ? x + offset + i * kElements : x, valid);
  }
}

/// 16 bytes of a pixel's channels at an odd offset of 16-bit elements, in words that are shifted by an element where
/// they must be. Several are loaded before the first is stored, because no load passes a store.
template <typename T>
class SingleElements {
 public:
  static_assert(sizeof(T) == 2);

  /// `valid` elements are of the pixel; `end`: the tensor's elements. A word that reaches past them is read by half.
  __device__ __forceinline__ void load(const T* x, int offset, int valid, int end) {
    valid_ = valid;
    odd_ = offset & 1;
    const int first = offset - odd_;
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      const int at = first + 2 * i;
      const bool whole = valid > 0 && at < offset + valid && at + 1 < end;
      words_[i] = whole ? *reinterpret_cast<const unsigned*>(x + at) : 0;
    }
    // By itself: a second load into the same register would wait for the first, once in each word.
    if (valid <= 0 || offset + valid < end || end % 2 == 0) return;
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      if (first + 2 * i == end - 1) words_[i] = *reinterpret_cast<const unsigned short*>(x + end - 1);
    }
  }

  /// With zeros past the valid elements.
  __device__ __forceinline__ void store(T* shared) const {
    unsigned aligned[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned word = odd_ ? __funnelshift_r(words_[i], words_[i + 1], 16) : words_[i];
      const int left = valid_ - 2 * i;
      aligned[i] = left >= 2 ? word : left == 1 ? word & 0xffffu : 0;
    }
    *reinterpret_cast<uint4*>(shared) = make_uint4(aligned[0], aligned[1], aligned[2], aligned[3]);
  }

 private:
  unsigned words_[5];
  int odd_, valid_;
};

/// A thread's share of the copies: 16 bytes of depth of rows that are kSlots apart, and the same of columns.
template <typename T, typename Tile>
class MmaLoader {
 public:
  __device__ __forceinline__ MmaLoader(const MmaArguments<T>& a, const BlockPlace& place)
      : cursor_(a.gemm, place.first * kStep + chunk() * kChunkElements),
        depth_(place.first * kStep + chunk() * kChunkElements) {
    const ImplicitGemm& g = a.gemm;
#pragma unroll
    for (int i = 0; i < kA; ++i) pixels_[i] = row_pixel(g, place.row + slot() + i * kSlots, place.group);
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      const int at = place.column + slot() + i * kSlots;
      columns_[i] = at < g.columns ? (place.group * g.padded_k + at) * g.depth : -1;
    }
  }

  /// The next stage of the depth.
  __device__ __forceinline__ void load(const MmaArguments<T>& a, unsigned char* stage) {
    const ImplicitGemm& g = a.gemm;
    unsigned char* to = stage + slot() * kMmaPitchBytes + chunk() * 16;
    copy_pixels(a, to);
    to += Tile::kRows * kMmaPitchBytes;
#pragma unroll
    for (int i = 0; i < kB; ++i) {
      const bool valid = columns_[i] >= 0 && depth_ < g.depth;
      copy_async<16>(to + i * kSlots * kMmaPitchBytes, valid ? a.packed + columns_[i] + depth_ : a.packed, valid);
    }
    cursor_.advance(g, kStep);
    depth_ += kStep;
  }

 private:
  static constexpr int kChunks = kMmaDepthBytes / 16;
  static constexpr int kChunkElements = 16 / static_cast<int>(sizeof(T));
  static constexpr int kStep = kMmaDepthBytes / static_cast<int>(sizeof(T));
  static constexpr int kSlots = Tile::kThreads / kChunks;  // from one of a thread's rows to the next
  static constexpr int kA = Tile::kRows / kSlots, kB = Tile::kColumns / kSlots;

  __device__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ static int slot() { return static_cast<int>(threadIdx.x) / kChunks; }

  __device__ __forceinline__ void copy_pixels(const MmaArguments<T>& a, unsigned char* to) const {
    if constexpr (sizeof(T) == 2 && kA > 1) {
      if (a.copy_bytes == 2) {
        copy_single_elements(a, to);
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      copy_pixel(a, pixels_[i], reinterpret_cast<T*>(to + i * kSlots * kMmaPitchBytes));
    }
  }

  __device__ __forceinline__ void copy_pixel(const MmaArguments<T>& a, const RowPixel& pixel, T* shared) const {
    const ImplicitGemm& g = a.gemm;
    int offset;
    const bool inside = cursor_.locate(g, pixel, offset);
    if (a.copy_bytes == 16) {
      copy_async<16>(shared, inside ? a.x + offset : a.x, inside);
      return;
    }
    const int valid = inside ? g.group_c - cursor_.channel() : 0;
    if (a.copy_bytes == 8) {
      copy_narrow<8>(a.x, offset, valid, shared);
    } else if (a.copy_bytes == 4) {
      copy_narrow<4>(a.x, offset, valid, shared);
    } else if constexpr (sizeof(T) == 2) {
      SingleElements<T> elements;
      elements.load(a.x, offset, valid, g.n * g.h * g.w * g.c);
      elements.store(shared);
    }
  }

  __device__ __forceinline__ void copy_single_elements(const MmaArguments<T>& a, unsigned char* to) const {
    const ImplicitGemm& g = a.gemm;
    SingleElements<T> loaded[kA];
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      int offset;
      const bool inside = cursor_.locate(g, pixels_[i], offset);
      loaded[i].load(a.x, offset, inside ? g.group_c - cursor_.channel() : 0, g.n * g.h * g.w * g.c);
    }
#pragma unroll
    for (int i = 0; i < kA; ++i) loaded[i].store(reinterpret_cast<T*>(to + i * kSlots * kMmaPitchBytes));
  }

  RowPixel pixels_[kA];
  int columns_[kB];
  DepthCursor cursor_;
  int depth_;
};

/// Four 8x8 matrices of 16-bit elements, or 8x4 of f32; each lane gives the address of a row.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], std::uint32_t address) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
#endif
}

/// Adds one stage's products to the warp's accumulators; a and b are the lane's addresses for ldmatrix.
template <typename T, typename Tile>
__device__ __forceinline__ void multiply(std::uint32_t a_at, std::uint32_t b_at,
                                         float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4]) {
#pragma unroll
  for (int k = 0; k < kMmaDepthBytes; k += 32) {
    unsigned a[Tile::kRowTiles][4], b[Tile::kColumnTiles / 2][4];
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) load_matrices(a[i], a_at + i * 16 * kMmaPitchBytes + k);
#pragma unroll
    for (int j = 0; j < Tile::kColumnTiles / 2; ++j) load_matrices(b[j], b_at + j * 16 * kMmaPitchBytes + k);
    if constexpr (sizeof(T) == 4) {  // weights are rounded when they are packed
#pragma unroll
      for (auto& tile : a) {
#pragma unroll
        for (unsigned& value : tile) value = __float_as_uint(round_to_tf32(__uint_as_float(value)));
      }
    }
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumnTiles; ++j) {
        multiply_add<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

}  // namespace gable::cuda
