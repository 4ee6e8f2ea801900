// m16n8k16 (f16, bf16) or m16n8k8 (tf32). The 16 rows of a product are 8 columns of two output rows, so that the 2x2
// maximum is one in the thread and one with lane ^ 4. In shared memory a pixel's channels lie together, padded to 4 or
// 8, in "units" of 8 bytes: a pixel has one, two or four units. A step of the reduction takes four units, one for each
// thread of a quad: thread t reads its unit of a pixel as one 8-byte word, which is both of its registers of A for that
// row, and B is packed to match. A table in shared memory says where each unit of each tap lies from the pixel. A
// thread's columns of C are 2 * tiles neighbouring channels, as the packed order of the channels says.
#include "cuda/few_channels/few_channels_mma.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/halo_tile.cuh"
#include "cuda/common/mma.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/vector_access.cuh"

namespace gable::cuda {

namespace {

struct FewChannelsMmaVariant {
  DType type;
  int tiles;  // of 8 output channels
  int rows;   // products of a warp, each of 8 positions
  int threads;
  void (*kernel)(HaloTile);
};

constexpr int kUnit = 8;         // bytes
constexpr int kUnitsOfStep = 4;  // one a thread of the quad

__host__ __device__ constexpr int padded_channels(int channels) { return channels <= 4 ? 4 : 8; }

/// tf32 lies in 4 bytes.
__host__ __device__ constexpr int pixel_bytes(const HaloTile& t) {
  return padded_channels(t.extents.c) * (t.format.type == DType::f32 ? 4 : 2);
}
__host__ __device__ constexpr int units_of(const HaloTile& t) {
  return t.window.kernel_h * t.window.kernel_w * pixel_bytes(t) / kUnit;
}
__host__ __device__ constexpr int steps_of(const HaloTile& t) {
  return (units_of(t) + kUnitsOfStep - 1) / kUnitsOfStep;
}
/// Bytes of B for one step and `tiles` tiles: two registers a lane and tile.
__host__ __device__ constexpr int step_bytes(int tiles) { return 32 * tiles * 8; }

/// An operand of the matrix unit: f32 is rounded to the nearest tf32.
template <typename T>
__device__ __forceinline__ T as_operand(T value) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == 4) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
  }
#endif
  return value;
}

/// How two neighbouring pixels are read from x. In words and vectors, the first one lies in an even column of an image
/// of even width, so that both are inside it or outside.
enum class PairOrder {
  planes,    // nchw: a word of two elements in each channel's plane
  three,     // nhwc of 3 channels: three such words
  whole,     // nhwc of as many channels as a pixel has in shared memory: whole vectors
  elements,  // anything else
};

template <typename T, int channels>
union PixelPair {
  T of[2 * channels];
  typename AccessOf<2 * sizeof(T)>::Type words[channels];
  uint4 vectors[2 * channels * sizeof(T) / 16];
};

/// `x` is the first channel in column `column` of the image. What lies outside it stays as it is.
template <PairOrder order, typename T, int channels>
__device__ __forceinline__ void load_pair(const HaloTile& t, const T* x, int column, PixelPair<T, channels>& pair) {
  const std::int64_t plane = t.format.nhwc ? 1 : static_cast<std::int64_t>(t.extents.h) * t.extents.w;
  if constexpr (order == PairOrder::elements) {
    const int step = t.format.nhwc ? t.extents.c * t.extents.groups : 1;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const bool inside = column + k >= 0 && column + k < t.extents.w;
#pragma unroll
      for (int c = 0; c < channels; ++c)
        if (inside && c < t.extents.c) pair.of[k * channels + c] = x[k * step + c * plane];
    }
  } else if (column >= 0 && column < t.extents.w) {
    if constexpr (order == PairOrder::whole) {
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(pair.vectors) / 16); ++i)
        pair.vectors[i] = reinterpret_cast<const uint4*>(x)[i];
    } else {
      using Word = typename AccessOf<2 * sizeof(T)>::Type;
#pragma unroll
      for (int i = 0; i < (order == PairOrder::three ? 3 : channels); ++i)
        if (order == PairOrder::three || i < t.extents.c)
          pair.words[i] = *reinterpret_cast<const Word*>(x + (order == PairOrder::three ? 2 * i : i * plane));
    }
  }
}

/// The place of a pixel's channel among the elements of its pair.
template <PairOrder order, int channels>
__device__ constexpr int element_of(int pixel, int channel) {
  return order == PairOrder::planes  ? 2 * channel + pixel
         : order == PairOrder::three ? 3 * pixel + channel
                                     : channels * pixel + channel;
}

/// The input tile, each pixel with its channels and zeros up to `channels`. The pairs of all rows are numbered through,
/// so that few rows keep all threads busy, and a thread has several pairs' loads in flight.
template <PairOrder order, typename T, int channels>
__device__ __forceinline__ void load_pairs(const HaloTile& t, const TilePlace& place, char* to) {
  struct alignas(kUnit) Pixel {
    T of[channels];
  };
  constexpr int pixel_units = channels * static_cast<int>(sizeof(T)) / kUnit;
  constexpr int kPairsAtOnce = 4 / pixel_units;
  const int pairs = static_cast<int>(t.line.pairs.value);
  const int all = place.images * t.cut.in_rows * pairs;
  const int before = t.window.pad_left % 2;  // the first pair begins this many columns before the tile
  for (int first = threadIdx.x; first < all; first += kPairsAtOnce * static_cast<int>(blockDim.x)) {
    Line<T> lines[kPairsAtOnce];
    int columns[kPairsAtOnce];
    PixelPair<T, channels> in[kPairsAtOnce];
#pragma unroll
    for (int i = 0; i < kPairsAtOnce; ++i) {
      const int index = first + i * static_cast<int>(blockDim.x);
      const int line = index / t.line.pairs;
      lines[i] = line_at<T>(t, place, line, false);
      columns[i] = 2 * (index - line * pairs) - before;
      const int x = columns[i] - t.window.pad_left;
#pragma unroll
      for (int j = 0; j < channels; ++j) in[i].words[j] = {};
      if (lines[i].from != nullptr)
        load_pair<order>(
            t, lines[i].from + static_cast<std::int64_t>(x) * (t.format.nhwc ? t.extents.c * t.extents.groups : 1), x,
            in[i]);
    }
#pragma unroll
    for (int i = 0; i < kPairsAtOnce; ++i) {
      if (lines[i].image < 0) continue;
      auto* const row = reinterpret_cast<Pixel*>(to + lines[i].image * t.shared.image + lines[i].row * t.shared.pitch);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        Pixel pixel;
#pragma unroll
        for (int c = 0; c < channels; ++c) {
          const bool there = order != PairOrder::three || c < 3;
          pixel.of[c] = there ? as_operand(in[i].of[element_of<order, channels>(k, c)]) : from_f32<T>(0.0f);
        }
        const int column = columns[i] + k;
        if (column >= 0 && column < t.shared.in_columns) row[column] = pixel;
      }
    }
  }
}

/// How pixels are loaded in pairs. In nhwc, words and vectors only work with a single group.
__host__ __device__ constexpr PairOrder pair_order(const HaloTile& t) {
  if (t.extents.w % 2 != 0) return PairOrder::elements;
  if (!t.format.nhwc) return PairOrder::planes;
  if (t.extents.groups > 1) return PairOrder::elements;
  return t.extents.c == 3                              ? PairOrder::three
         : t.extents.c == padded_channels(t.extents.c) ? PairOrder::whole
                                                       : PairOrder::elements;
}

template <typename T, int channels>
__device__ __forceinline__ void load_tile(const HaloTile& t, const TilePlace& place, char* to) {
  switch (pair_order(t)) {
    case PairOrder::planes:
      return load_pairs<PairOrder::planes, T, channels>(t, place, to);
    case PairOrder::three:
      if constexpr (channels == 4) load_pairs<PairOrder::three, T, channels>(t, place, to);
      return;
    case PairOrder::whole:
      return load_pairs<PairOrder::whole, T, channels>(t, place, to);
    case PairOrder::elements:
      return load_pairs<PairOrder::elements, T, channels>(t, place, to);
  }
}

/// Stores neighbouring channels in pieces of `width`, which divides `left`, the channels up to the last one.
template <int width, typename T, int count>
__device__ __forceinline__ void store_pieces(T* to, int left, const float (&values)[count]) {
#pragma unroll
  for (int first = 0; first < count; first += width) {
    float part[width];
#pragma unroll
    for (int i = 0; i < width; ++i) part[i] = values[first + i];
    if (first + width <= left) store_vector<T, width>(to + first, part);
  }
}

/// Channels of the widest store of a thread's `count`.
__host__ __device__ constexpr int widest_store(int count, int element) {
  return count < 16 / element ? count : 16 / element;
}

/// Channels of a store in nhwc: the widest that divides those of a group, and so all.
__host__ __device__ constexpr int store_width(int group_channels, int widest) {
  if (group_channels % widest == 0) return widest;
  return widest > 4 && group_channels % 4 == 0 ? 4 : group_channels % 2 == 0 ? 2 : 1;
}

/// Stores up to `count` neighbouring channels of one pixel of y; channels past the last one are left out.
template <typename T, int count>
__device__ __forceinline__ void store_channels(const HaloTile& t, std::int64_t image, int row, int column, int channel,
                                               int channels_left, const float (&values)[count]) {
  const std::int64_t all_channels = static_cast<std::int64_t>(t.extents.k) * t.extents.groups;
  T* const to = static_cast<T*>(t.tensors.y) + image * all_channels * t.output.out_h * t.output.out_w;
  if (!t.format.nhwc) {
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (i < channels_left)
        to[((channel + i) * t.output.out_h + row) * t.output.out_w + column] = from_f32<T>(values[i]);
    return;
  }
  T* const pixel = to + (row * t.output.out_w + column) * all_channels + channel;
  constexpr int widest = widest_store(count, static_cast<int>(sizeof(T)));
  const int width = store_width(t.extents.k, widest);
  if (width == widest) {
    store_pieces<widest>(pixel, channels_left, values);
  } else if (widest > 4 && width == 4) {
    store_pieces<(widest < 4 ? widest : 4)>(pixel, channels_left, values);
  } else if (width == 2) {
    store_pieces<2>(pixel, channels_left, values);
  } else {
    store_pieces<1>(pixel, channels_left, values);
  }
}

/// The 8 positions of a product: columns of one or more row pairs, numbered through the tile.
struct Position {
  int image, row, column;
};

__device__ __forceinline__ Position position_of(const HaloTile& t, const TilePlace& place, int index) {
  const int line = index / t.by.columns;
  // The last band of an image may be shorter, but then it is one image.
  const int image = place.images == 1 ? 0 : line / t.by.row_pairs;
  return {image, (line - image * place.row_pairs) * 2, index - line * t.output.wo};
}

/// The first of the group's channels that a thread stores. With a pool, two threads share the channels of a column.
template <int tiles>
__device__ __forceinline__ int first_channel(const HaloTile& t) {
  const int lane = threadIdx.x % 32;
  const bool second = t.format.pool && lane / 4 % 2 != 0;
  return static_cast<int>(blockIdx.y) * t.chunk + lane % 4 * (2 * tiles) + (second ? tiles : 0);
}

/// The bias of the group's channels from `channel` on; 0 past the last channel.
template <int count>
__device__ __forceinline__ void load_bias(const HaloTile& t, int group, int channel, float (&bias)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i)
    bias[i] = t.tensors.bias != nullptr && channel + i < t.extents.k
                  ? __ldg(t.tensors.bias + group * t.extents.k + channel + i)
                  : 0.0f;
}

template <typename T, int tiles>
__device__ __forceinline__ void finish(const HaloTile& t, const TilePlace& place, int index, int positions,
                                       const float (&sums)[tiles][4], const float (&bias)[2 * tiles]) {
  constexpr int mine = 2 * tiles;
  const int channel = first_channel<tiles>(t);
  float rows[2][mine];
#pragma unroll
  for (int i = 0; i < mine; ++i) {
    rows[0][i] = sums[i / 2][i % 2];
    rows[1][i] = sums[i / 2][2 + i % 2];
  }
  const Position p = position_of(t, place, min(index, positions - 1));
  const std::int64_t image = place.image + p.image;
  const int row = place.row + p.row;
  if (t.format.pool) {
    constexpr int half = tiles;  // of the channels: the quad's neighbour stores the others
    const bool odd = threadIdx.x / 4 % 2 != 0;
    float best[half];
#pragma unroll
    for (int i = 0; i < mine; ++i) rows[0][i] = max_or_nan(rows[0][i], rows[1][i]);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float give = odd ? rows[0][i] : rows[0][half + i];
      const float keep = odd ? rows[0][half + i] : rows[0][i];
      best[i] = max_or_nan(keep, __shfl_xor_sync(0xffffffff, give, 4));
    }
    finish_all<half>(best, bias, t.format.activation);
    if (index < positions && row < t.output.ho) {
      store_channels<T, half>(t, image, row / 2, p.column / 2, place.group * t.extents.k + channel,
                              t.extents.k - channel, best);
    }
    return;
  }
  finish_all(rows[0], bias, t.format.activation);
  finish_all(rows[1], bias, t.format.activation);
  if (index >= positions) return;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (row + i < t.output.ho)
      store_channels<T, mine>(t, image, row + i, p.column, place.group * t.extents.k + channel, t.extents.k - channel,
                              rows[i]);
}

/// Adds one step of the reduction. In the last step, the units past the last tap multiply zero weights. Their inputs
/// are zeroed too, because an infinity times zero is NaN.
template <typename T, int tiles, int rows, bool last>
__device__ __forceinline__ void add_step(const char* (&pixels)[rows], int lower, int offset, const char* weights,
                                         float (&sums)[rows][tiles][4]) {
  uint2 above[rows];
  uint2 below[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    if (!last || offset >= 0) {
      above[i] = *reinterpret_cast<const uint2*>(pixels[i] + offset);
      below[i] = *reinterpret_cast<const uint2*>(pixels[i] + offset + lower);
    } else {
      above[i] = below[i] = make_uint2(0, 0);
    }
  }
  static_assert(tiles % 2 == 0);
#pragma unroll
  for (int j = 0; j < tiles; j += 2) {
    const uint4 b = *reinterpret_cast<const uint4*>(weights + j * 256);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const unsigned a[4] = {above[i].x, below[i].x, above[i].y, below[i].y};
      multiply_add<T>(sums[i][j], a, b.x, b.y);
      multiply_add<T>(sums[i][j + 1], a, b.z, b.w);
    }
  }
}

/// Computes one tile, whose input lies in shared memory. Each warp takes 16 * rows pixels at a time.
template <typename T, int tiles, int rows>
__device__ __forceinline__ void compute(const HaloTile& t, const TilePlace& place, const char* input,
                                        const char* weights, const int* offsets) {
  const int lane = threadIdx.x % 32;
  const int steps = steps_of(t);
  const int positions = place.images * place.row_pairs * t.output.wo;
  const int lower = t.window.stride_h * t.shared.pitch;
  // With 64 channels a thread's bias does not fit the registers beside its sums; finish() loads it.
  float bias[2 * tiles];
  if (tiles <= 4) load_bias(t, place.group, first_channel<tiles>(t), bias);
  for (int first = threadIdx.x / 32 * (8 * rows); first < positions; first += blockDim.x / 32 * (8 * rows)) {
    const char* pixels[rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const Position p = position_of(t, place, min(first + 8 * i + lane / 4, positions - 1));
      pixels[i] = input + p.image * t.shared.image + p.row * t.window.stride_h * t.shared.pitch +
                  p.column * t.window.stride_w * pixel_bytes(t);
    }
    float sums[rows][tiles][4] = {};
    const char* w = weights + lane * 16;
    const int* offset = offsets + lane % 4;
#pragma unroll 2
    for (int step = 0; step + 1 < steps; ++step, w += step_bytes(tiles), offset += kUnitsOfStep)
      add_step<T, tiles, rows, false>(pixels, lower, *offset, w, sums);
    add_step<T, tiles, rows, true>(pixels, lower, *offset, w, sums);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      if (tiles > 4) load_bias(t, place.group, first_channel<tiles>(t), bias);
      finish<T, tiles>(t, place, first + 8 * i + lane / 4, positions, sums[i], bias);
    }
  }
}

template <typename T, int tiles, int rows, int threads, int blocks>
__global__ __launch_bounds__(threads, blocks) void few_channels_mma_kernel(const HaloTile t) {
  extern __shared__ uint4 shared_units[];
  const int steps = steps_of(t);
  const int units = units_of(t);
  auto* const weights = reinterpret_cast<char*>(shared_units);
  int* const offsets = reinterpret_cast<int*>(weights + steps * step_bytes(tiles));
  char* const input = reinterpret_cast<char*>(offsets + steps * kUnitsOfStep);
  const int units_of_pixel = pixel_bytes(t) / kUnit;
  for (int unit = threadIdx.x; unit < steps * kUnitsOfStep; unit += blockDim.x) {
    const int tap = unit / units_of_pixel;
    offsets[unit] = unit < units ? tap / t.window.kernel_w * t.window.dilation_h * t.shared.pitch +
                                       tap % t.window.kernel_w * t.window.dilation_w * pixel_bytes(t) +
                                       unit % units_of_pixel * kUnit
                                 : -1;
  }
  wait_for_previous_kernel();
  const std::int64_t part = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  copy_to_shared(static_cast<const float*>(t.tensors.packed) + part * steps * (step_bytes(tiles) / 4),
                 reinterpret_cast<float*>(weights), steps * (step_bytes(tiles) / 4));
  for (int tile = blockIdx.x; tile < t.cut.tiles; tile += gridDim.x) {
    const TilePlace place = tile_place(t, tile);
    if (t.extents.c <= 4) {
      load_tile<T, 4>(t, place, input);
    } else {
      load_tile<T, 8>(t, place, input);
    }
    __syncthreads();
    compute<T, tiles, rows>(t, place, input, weights, offsets);
    __syncthreads();
  }
}

/// One thread a register of B.
template <typename T>
__global__ void pack_few_channels_mma(const T* weights, WeightStrides strides, unsigned* packed, HaloTile t, int tiles,
                                      int chunks) {
  const int steps = steps_of(t);
  const std::int64_t registers = static_cast<std::int64_t>(t.extents.groups) * chunks * steps * tiles * 64;
  constexpr int in_register = 4 / static_cast<int>(sizeof(T));
  const int units_of_pixel = pixel_bytes(t) / kUnit;
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < registers; i += gridDim.x * blockDim.x) {
    // [group][chunk][step][pair of tiles, or tile][lane][tile of the pair][half of the unit]
    const int in_vector = tiles % 2 == 0 ? 4 : 2;
    const int half = static_cast<int>(i % 2);
    const int lane = static_cast<int>(i / in_vector % 32);
    std::int64_t rest = i / in_vector / 32;
    const int vectors = tiles * 2 / in_vector;
    const int tile = static_cast<int>(rest % vectors) * (in_vector / 2) + static_cast<int>(i % in_vector) / 2;
    rest /= vectors;
    const int step = static_cast<int>(rest % steps);
    rest /= steps;
    const int chunk = static_cast<int>(rest % chunks);
    const int group = static_cast<int>(rest / chunks);
    const int column = lane / 4;  // of the tile
    const int out = chunk * tiles * 8 + column / 2 * (2 * tiles) + 2 * tile + column % 2;
    const int unit = step * kUnitsOfStep + lane % 4;
    const int tap = unit / units_of_pixel;
    union {
      unsigned bits;
      T of[in_register];
    } value;
    for (int e = 0; e < in_register; ++e) {
      const int in = unit % units_of_pixel * (2 * in_register) + half * in_register + e;
      const bool there = out < t.extents.k && in < t.extents.c && tap < t.window.kernel_h * t.window.kernel_w;
      value.of[e] =
          there ? as_operand(weights[(group * t.extents.k + out) * strides.out + in * strides.in +
                                     tap / t.window.kernel_w * strides.row + tap % t.window.kernel_w * strides.column])
                : from_f32<T>(0.0f);
    }
    packed[i] = value.bits;
  }
}

template <typename T, int tiles, int rows, int threads, int blocks>
constexpr FewChannelsMmaVariant variant(DType type) {
  return {type, tiles, rows, threads, few_channels_mma_kernel<T, tiles, rows, threads, blocks>};
}

/// By the output channels of a block, fewest first.
template <typename T, DType type>
constexpr FewChannelsMmaVariant kVariants[] = {
    variant<T, 2, 4, 256, 3>(type),
    variant<T, 4, 2, 256, 3>(type),
    variant<T, 8, 2, 256, 2>(type),
};

/// The variants for the problem: all except those that compute at least twice as many output channels as it has.
std::span<const FewChannelsMmaVariant> variants_for(const Conv2dProblem& p) {
  const std::span<const FewChannelsMmaVariant> all = p.dtype == DType::f16    ? kVariants<__half, DType::f16>
                                                     : p.dtype == DType::bf16 ? kVariants<__nv_bfloat16, DType::bf16>
                                                                              : kVariants<float, DType::f32>;
  const std::int64_t k = p.group_k();
  return all.first(k <= 16 ? 1 : k <= 32 ? 2 : 3);
}

std::size_t lay_out(HaloTile& t, const FewChannelsMmaVariant& v) {
  t.chunk = 8 * v.tiles;
  t.by.columns = divisor(t.output.wo);
  t.shared.in_columns = (t.output.wo - 1) * t.window.stride_w + (t.window.kernel_w - 1) * t.window.dilation_w + 1;
  t.shared.pitch = t.shared.in_columns * pixel_bytes(t);
  t.shared.image = t.cut.in_rows * t.shared.pitch;
  t.line.pairs = divisor((t.shared.in_columns + t.window.pad_left % 2 + 1) / 2);
  return static_cast<std::size_t>(steps_of(t)) * (step_bytes(v.tiles) + kUnitsOfStep * 4) +
         static_cast<std::size_t>(t.cut.images) * t.shared.image;
}

double tile_cost(const HaloTile& t, const FewChannelsMmaVariant& v, int threads) {
  const int warps = threads / 32;
  const int tiles = (t.cut.images * t.cut.row_pairs * t.output.wo + 8 * v.rows - 1) / (8 * v.rows);
  const double rounds = (tiles + warps - 1) / warps;
  const double tile = static_cast<double>(steps_of(t)) * v.rows * (4 + v.tiles * 6) + v.rows * v.tiles * 24;
  const double load = static_cast<double>(t.cut.images) * t.cut.in_rows * t.shared.in_columns *
                      (pair_order(t) == PairOrder::elements ? 60 : 40) / 32;
  return rounds * warps * tile + load + 2000;
}

struct FewChannelsMmaChoice {
  const FewChannelsMmaVariant* variant = nullptr;
  TileChoice tile;
};

TileChoice choose_tile(const Conv2dProblem& p, const FewChannelsMmaVariant& v, const cudaDeviceProp& device) {
  HaloTile t = halo_tile(p);
  t.chunk = 8 * v.tiles;
  return choose_tile(t,
                     {.kernel = v.kernel,
                      .most_threads = v.threads,
                      .lay_out = [&v](HaloTile& tile) { return lay_out(tile, v); },
                      .tile_cost = [&v](const HaloTile& tile, int threads) { return tile_cost(tile, v, threads); }},
                     device);
}

/// The variant of most channels, or one of fewer that is estimated to be clearly cheaper: few pixels are cut by their
/// channels too, so that more multiprocessors work.
FewChannelsMmaChoice choose(const Conv2dProblem& p, const cudaDeviceProp& device) {
  constexpr double kClearly = 1.2;
  const std::span<const FewChannelsMmaVariant> variants = variants_for(p);
  FewChannelsMmaChoice best;
  for (auto v = variants.rbegin(); v != variants.rend(); ++v) {
    const TileChoice tile = choose_tile(p, *v, device);
    if (tile.threads == 0) continue;
    if (best.variant == nullptr || tile.cost * kClearly < best.tile.cost) best = {&*v, tile};
  }
  return best;
}

/// Cycles of a pair of pixels that a thread loads.
double pair_cycles(const HaloTile& t) {
  constexpr double kPair = 31.7, kAccess = 7.2;
  switch (pair_order(t)) {
    case PairOrder::planes:
      return kPair + kAccess * t.extents.c;
    case PairOrder::three:
      return kPair + kAccess * 3;
    case PairOrder::whole:
      return kPair + kAccess * pixel_bytes(t) / 8;
    case PairOrder::elements:
      return kPair + kAccess * 2 * t.extents.c;
  }
  return kPair;
}

/// Of nhwc stores that are narrower than a thread's channels allow: they take the longer, the farther pixels lie apart.
/// Of ten layers of 18 to 90 output channels, f16, bf16 and tf32, within a quarter of what they take.
double narrow_store_seconds(const FewChannelsMmaChoice& choice) {
  constexpr double kStoreOfPixelByte = 2.5e-14;
  const HaloTile& t = choice.tile.tile;
  const int element = static_cast<int>(size_of(choice.variant->type));
  const int widest = widest_store(2 * choice.variant->tiles, element), width = store_width(t.extents.k, widest);
  if (!t.format.nhwc || t.format.pool || width == widest) return 0;
  const double channels = static_cast<double>(t.extents.k) * t.extents.groups;
  const double stores = static_cast<double>(t.n) * t.output.ho * t.output.wo * channels / width;
  return kStoreOfPixelByte * channels * element * stores;
}

/// Cycles where nothing else is said. Fitted to the picks of 570 first layers on an H200, as few_channels' estimate; on
/// 225 others it erred by 19 % (root mean square) before narrow stores had a term, and the kernel of the least estimate
/// among all took 1.03 of the fastest.
double seconds_of(const FewChannelsMmaChoice& choice) {
  constexpr double kHertz = 1.755e9, kLaunch = 1.17e-6, kStart = 3490, kDeviceBytes = 1.85e12, kOverlap = 2.7;
  constexpr double kProduct = 1.36, kConflict = 1.4, kWeights = 2.83, kOutputs = 16.2, kRaggedOutputs = 4.1;
  constexpr double kTile = 220, kStepLatency = 261, kWeightByte = 0.021;
  constexpr int kPlaces = 16;  // words of 8 bytes in a cycle of shared memory
  const FewChannelsMmaVariant& v = *choice.variant;
  const HaloTile& t = choice.tile.tile;
  const int steps = steps_of(t), apart = std::gcd(t.window.stride_w * pixel_bytes(t) / kUnit, kPlaces);
  const double products = v.rows * v.tiles, ragged = t.extents.k % (8 * v.tiles) != 0 ? kRaggedOutputs : 0;
  const double task =
      steps * (products * kProduct + kConflict * v.rows * apart + kWeights * v.tiles) + products * (kOutputs + ragged);
  const std::int64_t positions = std::int64_t{t.cut.images} * t.cut.row_pairs * t.output.wo;
  const std::int64_t tasks = ceil_div(positions, 8 * v.rows);
  const double pairs = static_cast<double>(t.cut.images) * t.cut.in_rows * static_cast<int>(t.line.pairs.value);
  const double tile = static_cast<double>(tasks) * task + pairs / 32 * pair_cycles(t) + kTile;
  const double latency = static_cast<double>(ceil_div(tasks, choice.tile.threads / 32)) * steps * kStepLatency;
  const double cycles =
      kStart + kWeightByte * steps * step_bytes(v.tiles) +
      static_cast<double>(choice.tile.rounds) * std::max(static_cast<double>(choice.tile.together) * tile, latency);
  const double computing = cycles / kHertz, moving = halo_bytes(t) / kDeviceBytes;
  return kLaunch + std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap) +
         narrow_store_seconds(choice);
}

class FewChannelsMmaPlan final : public Conv2dPlan {
 public:
  FewChannelsMmaPlan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  Packing packing() const override { return packing_of(problem_, "few_channels_mma", {variant_->tiles}); }
  std::size_t packed_bytes() const override;
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  const FewChannelsMmaVariant* variant_;
  TileChoice choice_;
  bool overlaps_;
};

FewChannelsMmaPlan::FewChannelsMmaPlan(const Conv2dProblem& problem, const cudaDeviceProp& device) : problem_(problem) {
  const FewChannelsMmaChoice best = choose(problem, device);
  variant_ = best.variant;
  choice_ = best.tile;
  overlaps_ = may_overlap(choice_, device);
}

Path path_of(const FewChannelsMmaVariant& v) {
  return v.tiles == 8   ? Path::few_channels_mma_64_channels
         : v.tiles == 4 ? Path::few_channels_mma_32_channels
                        : Path::few_channels_mma_16_channels;
}

Path store_path(const HaloTile& t, const FewChannelsMmaVariant& v) {
  if (!t.format.nhwc) return Path::few_channels_mma_stores_planes;
  const int count = t.format.pool ? v.tiles : 2 * v.tiles;  // of a thread
  const int width = store_width(t.extents.k, widest_store(count, static_cast<int>(size_of(v.type))));
  return width == 8   ? Path::few_channels_mma_stores_8
         : width == 4 ? Path::few_channels_mma_stores_4
         : width == 2 ? Path::few_channels_mma_stores_2
                      : Path::few_channels_mma_stores_1;
}

Conv2dDescription FewChannelsMmaPlan::description() const {
  return {
      .kernel = "few_channels_mma",
      .tile =
          std::to_string(16 * variant_->rows) + " pixels x " + std::to_string(8 * variant_->tiles) + " channels a warp",
      .staging = "block of " + std::to_string(choice_.threads) + " threads, " +
                 std::to_string(choice_.tile.cut.images) + (choice_.tile.cut.images == 1 ? " image, " : " images, ") +
                 std::to_string(2 * choice_.tile.cut.row_pairs) + " rows: " + std::to_string(choice_.shared_bytes) +
                 " bytes of shared memory",
      .fusion = "bias, activation and pool in registers"};
}

std::size_t FewChannelsMmaPlan::packed_bytes() const {
  const auto chunks = static_cast<std::size_t>(ceil_div(choice_.tile.extents.k, choice_.tile.chunk));
  return static_cast<std::size_t>(choice_.tile.extents.groups) * chunks *
         static_cast<std::size_t>(steps_of(choice_.tile)) * static_cast<std::size_t>(step_bytes(variant_->tiles));
}

void FewChannelsMmaPlan::pack(const void* weights, const WeightStrides& strides, void* packed,
                              cudaStream_t stream) const {
  constexpr int threads = 256;
  const auto count = static_cast<std::int64_t>(packed_bytes() / 4);
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(ceil_div(count, threads), 1024));
  const auto chunks = static_cast<int>(ceil_div(choice_.tile.extents.k, choice_.tile.chunk));
  with_type(choice_.tile.format.type, [&](auto zero) {
    pack_few_channels_mma<<<blocks, threads, 0, stream>>>(static_cast<const decltype(zero)*>(weights), strides,
                                                          static_cast<unsigned*>(packed), choice_.tile, variant_->tiles,
                                                          chunks);
  });
  check_launch("pack_few_channels_mma");
}

void FewChannelsMmaPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                             cudaStream_t stream) const {
  HaloTile t = choice_.tile;
  t.tensors = {x, packed, bias, y};
  launch(variant_->kernel,
         {tile_grid(t, choice_.blocks), choice_.threads, static_cast<int>(choice_.shared_bytes), overlaps_}, stream, t);
  note_path(path_of(*variant_));
  note_path(pair_order(t) == PairOrder::elements ? Path::few_channels_mma_pixels : Path::few_channels_mma_pairs);
  note_path(store_path(t, *variant_));
}

}  // namespace

std::string FewChannelsMmaKernel::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  if (device.major < 8) return "sm_" + std::to_string(10 * device.major + device.minor) + ": it needs sm_80";
  const bool has_math = p.dtype == DType::f32 ? p.math == Math::tf32 : p.math == Math::strict;
  if (!has_math) return std::string(name_of(p.dtype)) + " in this math: it multiplies f16, bf16, and f32 as tf32";
  const std::string refusal = halo_tile_refusal(p);
  if (!refusal.empty()) return refusal;
  if (p.group_c() < 2) return std::to_string(p.group_c()) + " input channel a group; it takes 2 to 8";
  HaloTile t = halo_tile(p);
  cut_rows(t, 1, 1);
  const std::size_t bytes = lay_out(t, variants_for(p).front());
  if (bytes <= device.sharedMemPerBlockOptin) return "";
  return "two output rows need " + std::to_string(bytes) + " bytes of shared memory; a block of the device has " +
         std::to_string(device.sharedMemPerBlockOptin);
}

double FewChannelsMmaKernel::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return seconds_of(choose(problem, device));
}

std::unique_ptr<Conv2dPlan> FewChannelsMmaKernel::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<FewChannelsMmaPlan>(problem, device);
}

}  // namespace gable::cuda
