// The kernel: m16n8k16 (f16, bf16) or m16n8k8 (tf32). The 16 rows of a product are 8 columns of two output rows, so
// that the 2x2 maximum is one in the thread and one with lane ^ 4. In shared memory a pixel's channels lie together in
// "units". Up to 8 channels are padded to 4 or 8, and a unit has 8 bytes; more are padded to whole units of 16 bytes. A
// quad reads four units at once, one for each thread: thread t reads its unit of a pixel as one word, each 8 bytes of
// which are both of its registers of A for that row and a step of the reduction, and B is packed to match. A table in
// shared memory says where each unit of each tap lies from the pixel. A thread's columns of C are 2 * tiles
// neighbouring channels, as the packed order of the channels says.
#pragma once

#include "cuda/common/async_copy.cuh"
#include "cuda/common/halo_tile.cuh"
#include "cuda/common/mma.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/vector_access.cuh"
#include "cuda/few_channels/few_channels_mma_cut.h"

namespace gable::cuda::few_channels_mma {

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
  struct alignas(8) Pixel {
    T of[channels];
  };
  constexpr int pixel_units = channels * static_cast<int>(sizeof(T)) / 8;
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

/// Calls row(line, to) for each row of the tile's images, by line.lanes lanes of a warp; its other lanes take other
/// rows. `to`: the row in shared memory.
template <typename T, typename Body>
__device__ __forceinline__ void for_rows(const HaloTile& t, const TilePlace& place, char* tile, const Body& row) {
  const int teams = static_cast<int>(blockDim.x) / t.line.lanes, lines = place.images * t.cut.in_rows;
  for (int index = static_cast<int>(threadIdx.x) / t.line.lanes; index < lines; index += teams) {
    const Line<T> line = line_at<T>(t, place, index, false);
    row(line, tile + line.image * t.shared.image + line.row * t.shared.pitch);
  }
}

/// 16 bytes of a wide pixel's channels: the first one's place in its row of x and of shared memory.
struct WideUnit {
  int from, to;  // elements, bytes
  int channels;  // that there are; none outside the image
};

template <typename T>
__device__ __forceinline__ WideUnit unit_at(const HaloTile& t, int index) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  const int column = index / t.line.pixel_units;
  const int unit = index - column * static_cast<int>(t.line.pixel_units.value);
  const int along = column / t.line.stride, phase = column - along * t.window.stride_w;
  const int x = column - t.window.pad_left, channel = unit * kElements;
  const bool inside = x >= 0 && x < t.extents.w;
  return {x * t.extents.c * t.extents.groups + channel, phase * t.shared.plane + along * pixel_bytes(t) + unit * 16,
          inside ? t.extents.c - channel : 0};
}

/// The input tile of wide pixels, with zeros past the last channel, in copies of `access` bytes that are all in flight
/// together.
template <int access, typename T>
__device__ __forceinline__ void copy_units(const HaloTile& t, const TilePlace& place, char* tile) {
  constexpr int kElements = access / static_cast<int>(sizeof(T));
  for_rows<T>(t, place, tile, [&](const Line<T>& line, char* row) {
    for (int index = threadIdx.x & (t.line.lanes - 1); index < static_cast<int>(t.line.units.value);
         index += t.line.lanes) {
      const WideUnit unit = unit_at<T>(t, index);
#pragma unroll
      for (int i = 0; i < 16 / access; ++i) {
        const bool there = line.from != nullptr && i * kElements < unit.channels;
        const T* const from = line.from + (unit.from + i * kElements);
        copy_async<access>(row + unit.to + i * access, there ? static_cast<const void*>(from) : t.tensors.x, there);
      }
    }
  });
  commit_copies();
  wait_copies<0>();
}

/// The same through registers: f32 is rounded to tf32, and odd channels of two bytes have no asynchronous copies.
template <int access, typename T>
__device__ __forceinline__ void load_units(const HaloTile& t, const TilePlace& place, char* tile) {
  constexpr int kElements = access / static_cast<int>(sizeof(T)), kUnitsAtOnce = access < 8 ? 2 : 4;
  using Access = typename AccessOf<access>::Type;
  union Unit {
    uint4 vector;
    Access pieces[16 / access];
    T elements[16 / sizeof(T)];
    __device__ Unit() : vector{0, 0, 0, 0} {}
  };
  const int row_units = static_cast<int>(t.line.units.value);
  for_rows<T>(t, place, tile, [&](const Line<T>& line, char* row) {
    for (int first = threadIdx.x & (t.line.lanes - 1); first < row_units; first += kUnitsAtOnce * t.line.lanes) {
      WideUnit units[kUnitsAtOnce];
      Unit in[kUnitsAtOnce];
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
        units[i] = unit_at<T>(t, first + i * t.line.lanes);
        const auto* const from = reinterpret_cast<const Access*>(line.from + units[i].from);
#pragma unroll
        for (int j = 0; j < 16 / access; ++j)
          if (line.from != nullptr && j * kElements < units[i].channels) in[i].pieces[j] = from[j];
      }
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
#pragma unroll
        for (int j = 0; j < static_cast<int>(16 / sizeof(T)); ++j) in[i].elements[j] = as_operand(in[i].elements[j]);
        if (first + i * t.line.lanes < row_units) *reinterpret_cast<uint4*>(row + units[i].to) = in[i].vector;
      }
    }
  });
}

template <typename T>
__device__ __forceinline__ void load_wide_tile(const HaloTile& t, const TilePlace& place, char* to) {
  const int access = unit_access(t);
  if constexpr (sizeof(T) == 4) {
    if (access == 16) return load_units<16, T>(t, place, to);
    if (access == 8) return load_units<8, T>(t, place, to);
    load_units<4, T>(t, place, to);
  } else {
    if (access == 16) return copy_units<16, T>(t, place, to);
    if (access == 8) return copy_units<8, T>(t, place, to);
    if (access == 4) return copy_units<4, T>(t, place, to);
    load_units<2, T>(t, place, to);
  }
}

template <typename T, int channels>
__device__ __forceinline__ void load_narrow_tile(const HaloTile& t, const TilePlace& place, char* to) {
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

template <typename Unit, typename T>
__device__ __forceinline__ void load_tile(const HaloTile& t, const TilePlace& place, char* to) {
  if constexpr (sizeof(Unit) == 16) {
    load_wide_tile<T>(t, place, to);
  } else if (t.extents.c <= 4) {
    load_narrow_tile<T, 4>(t, place, to);
  } else {
    load_narrow_tile<T, 8>(t, place, to);
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

/// The registers of A of a unit's step: a unit of 8 bytes has one, of 16 bytes two.
template <int step>
__device__ __forceinline__ uint2 operands_of(const uint2& unit) {
  return unit;
}
template <int step>
__device__ __forceinline__ uint2 operands_of(const uint4& unit) {
  return step == 0 ? make_uint2(unit.x, unit.y) : make_uint2(unit.z, unit.w);
}

/// Adds one step of the reduction.
template <typename T, int step, typename Unit, int tiles, int rows>
__device__ __forceinline__ void add_step(const Unit (&above)[rows], const Unit (&below)[rows], const char* weights,
                                         float (&sums)[rows][tiles][4]) {
  static_assert(tiles == 1 || tiles % 2 == 0);
  const auto add = [&](int row, int tile, unsigned low, unsigned high) {
    const uint2 upper = operands_of<step>(above[row]), lower = operands_of<step>(below[row]);
    const unsigned a[4] = {upper.x, lower.x, upper.y, lower.y};
    multiply_add<T>(sums[row][tile], a, low, high);
  };
  if constexpr (tiles == 1) {
    const uint2 b = *reinterpret_cast<const uint2*>(weights);
#pragma unroll
    for (int i = 0; i < rows; ++i) add(i, 0, b.x, b.y);
  } else {
#pragma unroll
    for (int j = 0; j < tiles; j += 2) {
      const uint4 b = *reinterpret_cast<const uint4*>(weights + j * 256);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        add(i, j, b.x, b.y);
        add(i, j + 1, b.z, b.w);
      }
    }
  }
}

/// Adds what four units of each pixel make. In the last group, the units past the last tap multiply zero weights. Their
/// inputs are zeroed too, because an infinity times zero is NaN.
template <typename T, typename Unit, int tiles, int rows, bool last>
__device__ __forceinline__ void add_units(const char* (&pixels)[rows], int lower, int offset, const char* weights,
                                          float (&sums)[rows][tiles][4]) {
  Unit above[rows];
  Unit below[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    if (!last || offset >= 0) {
      above[i] = *reinterpret_cast<const Unit*>(pixels[i] + offset);
      below[i] = *reinterpret_cast<const Unit*>(pixels[i] + offset + lower);
    } else {
      above[i] = below[i] = Unit{};
    }
  }
  add_step<T, 0>(above, below, weights, sums);
  if constexpr (sizeof(Unit) == 16) add_step<T, 1>(above, below, weights + step_bytes(tiles), sums);
}

/// Computes one tile, whose input lies in shared memory. Each warp takes 16 * rows pixels at a time.
template <typename T, typename Unit, int tiles, int rows>
__device__ __forceinline__ void compute(const HaloTile& t, const TilePlace& place, const char* input,
                                        const char* weights, const int* offsets) {
  const int lane = threadIdx.x % 32;
  const int groups = unit_groups_of(t);
  const int column_step = pixel_bytes(t) * (sizeof(Unit) == 16 ? 1 : t.window.stride_w);
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
      pixels[i] =
          input + p.image * t.shared.image + p.row * t.window.stride_h * t.shared.pitch + p.column * column_step;
    }
    float sums[rows][tiles][4] = {};
    const char* w = weights + lane * (tiles == 1 ? 8 : 16);
    const int* offset = offsets + lane % 4;
    constexpr int kGroupWeights = step_bytes(tiles) * static_cast<int>(sizeof(Unit)) / 8;
#pragma unroll 2
    for (int group = 0; group + 1 < groups; ++group, w += kGroupWeights, offset += kUnitsOfGroup)
      add_units<T, Unit, tiles, rows, false>(pixels, lower, *offset, w, sums);
    add_units<T, Unit, tiles, rows, true>(pixels, lower, *offset, w, sums);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      if (tiles > 4) load_bias(t, place.group, first_channel<tiles>(t), bias);
      finish<T, tiles>(t, place, first + 8 * i + lane / 4, positions, sums[i], bias);
    }
  }
}

template <typename T, typename Unit, int tiles, int rows, int threads, int blocks>
__global__ __launch_bounds__(threads, blocks) void few_channels_mma_kernel(const HaloTile t) {
  extern __shared__ uint4 shared_units[];
  const int steps = steps_of(t), units = units_of(t), groups = unit_groups_of(t);
  auto* const weights = reinterpret_cast<char*>(shared_units);
  int* const offsets = reinterpret_cast<int*>(weights + steps * step_bytes(tiles));
  char* const input = reinterpret_cast<char*>(offsets + groups * kUnitsOfGroup);
  for (int unit = threadIdx.x; unit < groups * kUnitsOfGroup; unit += blockDim.x) {
    const int tap = unit / units_of_pixel(t);
    offsets[unit] = unit < units ? tap / t.window.kernel_w * t.window.dilation_h * t.shared.pitch +
                                       column_place(t, tap % t.window.kernel_w * t.window.dilation_w) +
                                       unit % units_of_pixel(t) * static_cast<int>(sizeof(Unit))
                                 : -1;
  }
  wait_for_previous_kernel();
  const std::int64_t part = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  copy_to_shared(static_cast<const float*>(t.tensors.packed) + part * steps * (step_bytes(tiles) / 4),
                 reinterpret_cast<float*>(weights), steps * (step_bytes(tiles) / 4));
  for (int tile = blockIdx.x; tile < t.cut.tiles; tile += gridDim.x) {
    const TilePlace place = tile_place(t, tile);
    load_tile<Unit, T>(t, place, input);
    __syncthreads();
    compute<T, Unit, tiles, rows>(t, place, input, weights, offsets);
    __syncthreads();
  }
}

template <typename T, typename Unit, int tiles, int rows, int threads, int blocks>
constexpr Variant variant(DType type, Path path) {
  return {type, tiles, rows, threads, path, few_channels_mma_kernel<T, Unit, tiles, rows, threads, blocks>};
}

}  // namespace gable::cuda::few_channels_mma
