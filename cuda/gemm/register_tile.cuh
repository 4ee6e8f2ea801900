// Device code of register_tile.h: one kernel for each tile and way to gather pixels.
#pragma once

#include <type_traits>

#include "cuda/gemm/implicit.cuh"

namespace gable::cuda::register_tile {

inline constexpr int kThreadRows = 8;
inline constexpr int kTogether = 2;  // places of the depth that one read of pixels covers
inline constexpr int kPadding = 4;   // packed channels are multiples of it: 16 bytes of f32

/// A block's tile. `quads`: runs of four columns that a thread computes; `slices`: warps that share a warp's tile, each
/// with its part of a stage's depth; `resident`: blocks that a multiprocessor's registers hold; `depth` of a stage.
template <int rows, int columns, int quads, int slices, int resident, int depth, int stages>
struct Tile {
  static constexpr int kRows = rows, kColumns = columns, kQuads = quads, kSlices = slices, kResident = resident;
  static constexpr int kDepth = depth, kStages = stages;
  static constexpr int kThreadColumns = 4 * quads;
  static constexpr int kLanesAcross = 64 / kThreadColumns < 8 ? 4 : 8, kLanesDown = 32 / kLanesAcross;
  static constexpr int kWarpRows = kLanesDown * kThreadRows, kWarpColumns = kLanesAcross * kThreadColumns;
  static constexpr int kWarpsAcross = columns / kWarpColumns, kWarps = rows / kWarpRows * kWarpsAcross;
  static constexpr int kThreads = kWarps * slices * 32;
  static constexpr int kSums = kThreadRows * kThreadColumns;  // of a thread
  // Places of a slice, and those that the loop's body covers: 16 KiB of instructions, which the caches hold.
  static constexpr int kPlaces = depth / slices, kMostPlaces = 1024 / kSums;
  static constexpr int kBody = kPlaces < kMostPlaces ? kPlaces : kMostPlaces, kBodies = kPlaces / kBody;
  static constexpr int kRowPitch = depth + 4;  // of A in shared memory: copies stay aligned, reads free of conflicts
  static constexpr int kStageFloats = rows * kRowPitch + depth * columns;
  static constexpr int kStageBytes = kStageFloats * static_cast<int>(sizeof(float));
  static constexpr int kBiasBytes = columns * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = kStages * kStageBytes + kBiasBytes;
  static_assert(kThreads >= columns && kBody % kTogether == 0 && kBody * kBodies == kPlaces);
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

/// What a thread computes of its block's tile.
struct ThreadPlace {
  int slice, thread;  // of the depth; in the slice
  int row, column;    // its warp's first row, its own first column
  int lane_row;       // of its rows in the warp's
};

template <typename Tile>
__device__ __forceinline__ ThreadPlace thread_place() {
  constexpr int kSliceThreads = Tile::kWarps * 32;
  const int thread = static_cast<int>(threadIdx.x) % kSliceThreads, warp = thread / 32, lane = thread % 32;
  return {.slice = static_cast<int>(threadIdx.x) / kSliceThreads,
          .thread = thread,
          .row = warp / Tile::kWarpsAcross * Tile::kWarpRows,
          .column = warp % Tile::kWarpsAcross * Tile::kWarpColumns + lane_across<Tile>(lane) * 4,
          .lane_row = lane_down<Tile>(lane)};
}

/// Where sums go: to `y`, or with several splits of the depth to `parts`.
struct Destination {
  int splits;
  float *y, *parts;
};

/// Which pixels a thread copies: kRows rows, of each four channels at every kSpan places. Two threads a row leave the
/// most registers; more read longer runs of it.
template <typename Tile, int least_lanes>
struct PixelShare {
  static constexpr int kDepth = Tile::kDepth;
  static constexpr int kAll = Tile::kThreads / Tile::kRows,
                       kLanes = kAll > least_lanes ? kAll : least_lanes;  // of a row
  static constexpr int kSpan = kLanes * 4, kSlots = Tile::kThreads / kLanes, kRows = Tile::kRows / kSlots;
  static_assert(kRows * kSlots == Tile::kRows && kDepth % kSpan == 0);

  __device__ static int channel() { return static_cast<int>(threadIdx.x) % kLanes * 4; }
  __device__ static int slot() { return static_cast<int>(threadIdx.x) / kLanes; }
  /// Where the thread's first four channels lie in a stage, and its row i, k places after its first, from there.
  __device__ static std::uint32_t first() {
    return static_cast<std::uint32_t>((slot() * Tile::kRowPitch + channel()) * sizeof(float));
  }
  static constexpr std::uint32_t from_first(int i, int k) {
    return static_cast<std::uint32_t>((i * kSlots * Tile::kRowPitch + k) * sizeof(float));
  }
};

/// Copies pixels where a whole stage belongs to one tap: addresses are computed at each tap, and advance between.
/// `ends`: there is one tap, whose channels may end within a stage.
template <typename Tile, bool ends>
class StagePixels {
  using Share = PixelShare<Tile, 2>;

 public:
  __device__ StagePixels(const ImplicitGemm& g, const float* x, int row, int group, int depth)
      : x_(x), to_(Share::first()) {
#pragma unroll
    for (int i = 0; i < Share::kRows; ++i) {
      pixels_[i] = row_pixel(g, row + Tile::row_of_slot(Share::slot() + i * Share::kSlots), group);
      pixels_[i].offset += Share::channel();
    }
    const int tap = depth / g.padded_c;
    channel_ = depth - tap * g.padded_c;
    r_ = tap / g.s;
    s_ = tap - r_ * g.s;
    end_ = g.padded_c - Share::channel();
    locate(g);
  }

  static constexpr int kSpans = Tile::kDepth / Share::kSpan, kCopies = Share::kRows * kSpans;
  /// The n-th copy of the next stage; zeros if it is not `wanted`.
  __device__ __forceinline__ void copy(int n, std::uint32_t stage, bool wanted) {
    const int i = n / kSpans, k = n % kSpans * Share::kSpan;
    copy_async<16>(stage + to_ + Share::from_first(i, k), from_[i] + k,
                   wanted && inside_[i] && (!ends || channel_ + k < end_));
  }
  /// To the stage after it.
  __device__ __forceinline__ void advance(const ImplicitGemm& g) {
#pragma unroll
    for (const float*& from : from_) from += Tile::kDepth;
    channel_ += Tile::kDepth;
    if (ends || channel_ < g.padded_c) return;
    channel_ = 0;
    if (++s_ == g.s) {
      s_ = 0;
      ++r_;
    }
    locate(g);
  }

 private:
  __device__ __forceinline__ void locate(const ImplicitGemm& g) {
    const int h = r_ * g.dilation_h, w = s_ * g.dilation_w;
#pragma unroll
    for (int i = 0; i < Share::kRows; ++i) {
      const RowPixel& pixel = pixels_[i];
      inside_[i] = static_cast<unsigned>(pixel.row + h) < static_cast<unsigned>(g.h) &&
                   static_cast<unsigned>(pixel.column + w) < static_cast<unsigned>(g.w);
      from_[i] = x_ + (inside_[i] ? pixel.offset + (h * g.w + w) * g.c + channel_ : 0);
    }
  }

  const float* x_;
  const float* from_[Share::kRows];
  RowPixel pixels_[Share::kRows];
  bool inside_[Share::kRows];
  int channel_, end_, r_, s_;
  std::uint32_t to_;
};

/// Copies pixels whose channels in a stage may belong to several taps. `whole`: runs of four channels belong to one.
template <typename Tile, bool whole>
class PiecePixels {
  using Share = PixelShare<Tile, Tile::kDepth >= 16 ? 4 : 2>;

 public:
  __device__ PiecePixels(const ImplicitGemm& g, const float* x, int row, int group, int depth)
      : x_(x), to_(Share::first()), cursor_(g, depth + Share::channel()) {
#pragma unroll
    for (int i = 0; i < Share::kRows; ++i) {
      pixels_[i] = row_pixel(g, row + Tile::row_of_slot(Share::slot() + i * Share::kSlots), group);
    }
  }

  __device__ __forceinline__ void load(const ImplicitGemm& g, std::uint32_t stage) {
#pragma unroll
    for (int k = 0; k < Tile::kDepth; k += Share::kSpan) {
#pragma unroll
      for (int i = 0; i < Share::kRows; ++i) {
        int offset;
        const bool inside = cursor_.locate(g, pixels_[i], offset);
        const std::uint32_t to = stage + to_ + Share::from_first(i, k);
        if constexpr (whole) {
          copy_async<16>(to, inside ? x_ + offset : x_, inside);
        } else {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const bool valid = inside && cursor_.channel() + j < g.group_c;
            copy_async<4>(to + j * static_cast<int>(sizeof(float)), valid ? x_ + offset + j : x_, valid);
          }
        }
      }
      cursor_.advance(g, Share::kSpan);
    }
  }

 private:
  const float* x_;
  std::uint32_t to_;
  RowPixel pixels_[Share::kRows];
  DepthCursor cursor_;
};

/// Copies weights. `ends`: the depth may end within a stage.
template <typename Tile, bool ends>
class Weights {
 public:
  static constexpr int kAcross = Tile::kColumns / 4, kDown = Tile::kThreads / kAcross, kCopies = Tile::kDepth / kDown;
  static_assert(kCopies * kDown == Tile::kDepth);

  __device__ Weights(const ImplicitGemm& g, const float* packed, int column, int group, int depth)
      : packed_(packed), depth_(depth + static_cast<int>(threadIdx.x) / kAcross) {
    const int across = static_cast<int>(threadIdx.x) % kAcross * 4;
    valid_ = column + across < g.padded_k;
    from_ =
        packed + (valid_ ? (static_cast<std::int64_t>(group) * g.depth + depth_) * g.padded_k + column + across : 0);
    step_ = valid_ ? kDown * g.padded_k : 0;
    to_ = static_cast<std::uint32_t>(
        (Tile::kRows * Tile::kRowPitch + static_cast<int>(threadIdx.x) / kAcross * Tile::kColumns + across) *
        sizeof(float));
  }

  /// The n-th copy of the next stage; zeros if it is not `wanted`.
  __device__ __forceinline__ void copy(const ImplicitGemm& g, int n, std::uint32_t stage, bool wanted) {
    const bool valid = wanted && valid_ && (!ends || depth_ + n * kDown < g.depth);
    copy_async<16>(stage + to_ + n * kDown * Tile::kColumns * static_cast<int>(sizeof(float)),
                   !ends || valid ? from_ + n * step_ : packed_, valid);
  }
  __device__ __forceinline__ void advance() {
    from_ += kCopies * step_;
    if constexpr (ends) depth_ += Tile::kDepth;
  }

 private:
  const float* packed_;
  const float* from_;
  int depth_, step_;
  std::uint32_t to_;
  bool valid_;
};

/// Copies stages of the depth, one after another.
template <typename Tile, Gather gather>
class Loader {
  static constexpr bool kWhole = gather == Gather::stages, kEnds = !kWhole;
  using Pieces = PiecePixels<Tile, gather == Gather::chunks>;

 public:
  /// Whether copies are so simple that they go between products.
  static constexpr bool kSpread = kWhole || gather == Gather::one_tap;

  __device__ Loader(const ImplicitGemm& g, const float* x, const float* packed, const BlockPlace& at)
      : pixels_(g, x, at.row, at.group, at.first * Tile::kDepth),
        weights_(g, packed, at.column, at.group, at.first * Tile::kDepth) {}

  __device__ __forceinline__ void load(const ImplicitGemm& g, std::uint32_t stage) {
    if constexpr (kSpread) {
      copy_all(g, stage, true);
    } else {
      pixels_.load(g, stage);
#pragma unroll
      for (int n = 0; n < kWeights; ++n) weights_.copy(g, n, stage, true);
    }
    advance(g);
  }

  /// Between products: the copies of a stage, zeros if it is not `wanted`, and the way to the next.
  __device__ __forceinline__ void copy_all(const ImplicitGemm& g, std::uint32_t stage, bool wanted) {
    static_assert(kSpread);
#pragma unroll
    for (int n = 0; n < kWeights; ++n) weights_.copy(g, n, stage, wanted);
#pragma unroll
    for (int n = 0; n < StagePixels<Tile, kEnds>::kCopies; ++n) pixels_.copy(n, stage, wanted);
  }
  __device__ __forceinline__ void advance(const ImplicitGemm& g) {
    weights_.advance();
    if constexpr (kSpread) pixels_.advance(g);
  }

 private:
  using Pixels = std::conditional_t<kSpread, StagePixels<Tile, kEnds>, Pieces>;
  static constexpr int kWeights = Weights<Tile, kEnds>::kCopies;

  Pixels pixels_;
  Weights<Tile, kEnds> weights_;
};

// By hand, so that they stay in order.
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

/// What a thread multiplies: pixels of two places of the depth, and weights of one and the next.
template <typename Tile>
struct Operands {
  float pixels[kThreadRows][kTogether];
  float weights[2][Tile::kQuads][4];

  __device__ __forceinline__ void load_pixels(int row, std::uint32_t a) {
    load_shared(a + Tile::kLanesDown * row * Tile::kRowPitch * static_cast<int>(sizeof(float)), pixels[row]);
  }
  __device__ __forceinline__ void load_weights(int quad, int to, std::uint32_t b) {
    load_shared(b + quad * Tile::kLanesAcross * 4 * static_cast<int>(sizeof(float)), weights[to][quad]);
  }
  /// What the first products need.
  __device__ __forceinline__ void load_first(std::uint32_t a, std::uint32_t b) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) load_pixels(i, a);
#pragma unroll
    for (int q = 0; q < Tile::kQuads; ++q) load_weights(q, 0, b);
  }
};

/// The products at one place of the depth, `j` of the two whose pixels are there. Between them the thread loads the
/// weights of the next place, at `b`, and at the second of two places each row's next pixels, at `a`, as soon as the
/// row is done: so no product waits for its operands. By hand, so that they stay in this order.
///
/// An FFMA takes longer if its operands come from one register bank (even, odd). Sums lie in aligned quads for their
/// stores and weights for their loads, so weights are packed with neighbours swapped: column c is multiplied by the
/// weight in register c ^ 1, of the other parity. Rows go to and fro, so that the weight is reused where the pixel
/// changes; it changes at columns whose sums lie in the bank that the pixel does not.
///
/// `after_row` is called after each row's products.
template <typename Tile, int j, typename AfterRow>
__device__ __forceinline__ void multiply_place(std::uint32_t a, std::uint32_t b, Operands<Tile>& operands,
                                               float (&sums)[Tile::kQuads][kThreadRows][4], AfterRow&& after_row) {
  constexpr int kColumns = Tile::kThreadColumns, kFirst = Tile::kQuads, kEvery = 2 * Tile::kQuads;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int at = 0; at < kColumns; ++at) {
      const int c = column_at<kColumns>(i % 2 == 0 ? at : kColumns - 1 - at, 1 - j);
      multiply_add(sums[c / 4][i][c % 4], operands.pixels[i][j], operands.weights[j][c / 4][c % 4 ^ 1]);
      const int since = i * kColumns + at + 1 - kFirst;
      if (since >= 0 && since % kEvery == 0 && since / kEvery < Tile::kQuads) {
        operands.load_weights(since / kEvery, 1 - j, b);
      }
    }
    if constexpr (j == 1) operands.load_pixels(i, a);
    after_row(i);
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

/// Stores a thread's sums to y, or where the depth is split to its part.
template <typename Tile>
__device__ __forceinline__ void store_sums(const ImplicitGemm& g, const BlockPlace& place, const ThreadPlace& own,
                                           const Destination& to, const float (&sums)[Tile::kQuads][kThreadRows][4]) {
  const int row = place.row + own.row + own.lane_row * kThreadRows;
#pragma unroll
  for (int q = 0; q < Tile::kQuads; ++q) {
    const int at = place.column + own.column + q * 4 * Tile::kLanesAcross;
    if (to.splits == 1) {
      store_rows(g, to.y, row, place.group, at, sums[q]);
    } else {
      store_part(g, to.parts, place.part, row, place.group, at, sums[q]);
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
  const std::uint32_t stages_at = shared_address(memory);
  const BlockPlace place = block_place<Tile::kRows, Tile::kColumns>(g, splits, Tile::kDepth);
  Loader<Tile, gather> loader(g, x, packed, place);
  wait_for_previous_kernel();
  float* const added = stages + Tile::kStages * Tile::kStageFloats;  // the bias
  if (threadIdx.x < Tile::kColumns) {
    const int at = place.column + static_cast<int>(threadIdx.x);
    const bool valid = g.bias && at < g.columns;
    copy_async<4>(added + threadIdx.x, valid ? bias + place.group * g.columns + at : x, valid);
  }
#pragma unroll
  for (int s = 0; s < Tile::kStages; ++s) {
    if (place.first + s < place.last) loader.load(g, stages_at + s * Tile::kStageBytes);
    commit_copies();
  }
  const auto own = thread_place<Tile>();
  const int depth = own.slice * Tile::kPlaces;
  const std::uint32_t a_at = shared_address(stages + (own.row + own.lane_row) * Tile::kRowPitch + depth);
  const std::uint32_t b_at =
      shared_address(stages + Tile::kRows * Tile::kRowPitch + depth * Tile::kColumns + own.column);
  float sums[Tile::kQuads][kThreadRows][4] = {};  // quads of columns lie 4 * kLanesAcross apart
  Operands<Tile> operands;
  wait_copies<Tile::kStages - 1>();
  __syncthreads();
  operands.load_first(a_at, b_at);
  constexpr int kA = sizeof(float), kB = Tile::kColumns * kA, kBody = Tile::kBody;  // bytes of a place
  const auto nothing = [](int) {};
  int now = 0;
  for (int step = place.first; step < place.last; ++step) {
    const int next = now + 1 == Tile::kStages ? 0 : now + 1;
    std::uint32_t a = a_at + now * Tile::kStageBytes, b = b_at + now * Tile::kStageBytes;
#pragma unroll 1
    for (int body = 0; body < Tile::kBodies; ++body) {
#pragma unroll
      for (int k = 0; k + kTogether < kBody; k += kTogether) {
        multiply_place<Tile, 0>(0, b + (k + 1) * kB, operands, sums, nothing);
        multiply_place<Tile, 1>(a + (k + 2) * kA, b + (k + 2) * kB, operands, sums, nothing);
      }
      multiply_place<Tile, 0>(0, b + (kBody - 1) * kB, operands, sums, nothing);
      a += kBody * kA, b += kBody * kB;
      if (body + 1 < Tile::kBodies) {
        multiply_place<Tile, 1>(a, b, operands, sums, nothing);
        continue;
      }
      // The stage's last operands are in registers: it makes way for another, and reading goes on in the next.
      wait_copies<Tile::kStages - 2>();
      __syncthreads();
      a = a_at + next * Tile::kStageBytes, b = b_at + next * Tile::kStageBytes;
      const std::uint32_t free = stages_at + now * Tile::kStageBytes;
      const bool more = step + Tile::kStages < place.last;
      if constexpr (Loader<Tile, gather>::kSpread) {
        multiply_place<Tile, 1>(a, b, operands, sums, [&](int row) {
          if (row == 1) loader.copy_all(g, free, more);
        });
        loader.advance(g);
      } else {
        if (more) loader.load(g, free);
        multiply_place<Tile, 1>(a, b, operands, sums, nothing);
      }
      commit_copies();
    }
    now = next;
  }
  if constexpr (Tile::kSlices > 1) {
    wait_copies<0>();  // zeros that nobody wants still arrive where sums are about to lie
    add_slices<Tile>(memory, own.slice, own.thread, sums);
  }
  if (own.slice > 0) return;
  if (splits == 1) finish<Tile>(g, added + own.column, sums);
  store_sums<Tile>(g, place, own, {splits, y, parts}, sums);
}

using Kernel = GemmKernel<void(ImplicitGemm, int, const float*, const float*, const float*, float*, float*)>;

using Large = Tile<128, 256, 4, 1, 1, 8, 4>;
using Wide = Tile<128, 128, 4, 1, 2, 8, 4>;
using Tall = Tile<128, 64, 2, 1, 3, 16, 3>;
using Broad = Tile<64, 128, 2, 1, 3, 16, 3>;
using BroadHalves = Tile<64, 128, 2, 2, 1, 16, 4>;
using Small = Tile<64, 64, 2, 1, 6, 16, 3>;
using SmallHalves = Tile<64, 64, 2, 2, 3, 16, 4>;
using SmallQuarters = Tile<64, 64, 2, 4, 1, 32, 3>;

template <typename Tile, Gather gather>
Kernel compiled() {
  return {register_tile_kernel<Tile, gather>, Tile::kThreads, Tile::kSharedBytes};
}

/// Tiles of 8x16 sums a thread, compiled by themselves.
template <typename Tile>
Kernel wide_kernel(Gather gather);

}  // namespace gable::cuda::register_tile
