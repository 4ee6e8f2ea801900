// Tiles: a block's input tile lies in shared memory as [image][channel][row][column phase][column], phases being the
// columns modulo the stride, so that a warp's reads of neighbouring outputs are contiguous. Per tap and channel a
// thread does 2 x columns x channels FMA for channels / 4 broadcast reads of weights; a row of inputs in registers
// serves all taps of the row. Warps take the same channels where they can.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/halo_tile.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/vector_access.cuh"
#include "cuda/few_channels/few_channels.h"

namespace gable::cuda {

namespace {

/// A register tile that is compiled: for one filter width and horizontal stride, or (0) any.
struct FewChannelsVariant {
  int channels, columns, kernel_w, stride_w, threads;
  Path path;
  void (*kernel)(HaloTile);
};

constexpr int kWindowSlack = 16;  // a row is read in whole vectors, up to this many floats past its end

constexpr int pad_to(int value, int unit) { return (value + unit - 1) / unit * unit; }

/// Reads `count` floats, rounded up to whole vectors of what `columns` keeps aligned.
template <int columns, int count>
__device__ __forceinline__ void read_row(const float* from, float (&values)[pad_to(count, 4)]) {
  if constexpr (columns % 4 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      values[i] = v.x, values[i + 1] = v.y, values[i + 2] = v.z, values[i + 3] = v.w;
    }
  } else {
    static_assert(columns % 2 == 0);
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      const float2 v = *reinterpret_cast<const float2*>(from + i);
      values[i] = v.x, values[i + 1] = v.y;
    }
  }
}

template <int channels>
__device__ __forceinline__ void read_weights(const float* from, float (&values)[channels]) {
  static_assert(channels % 2 == 0);
  if constexpr (channels % 4 == 0) {
#pragma unroll
    for (int i = 0; i < channels; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      values[i] = v.x, values[i + 1] = v.y, values[i + 2] = v.z, values[i + 3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < channels; i += 2) {
      const float2 v = *reinterpret_cast<const float2*>(from + i);
      values[i] = v.x, values[i + 1] = v.y;
    }
  }
}

template <int channels, int columns>
struct Sums {
  float of[2][columns][channels] = {};
};

/// One input channel and kernel row: its taps, for two output rows.
template <int channels, int columns, int kernel_w, int stride_w>
__device__ __forceinline__ void add_row(const float* upper, const float* lower, int phase_pitch, const float* weights,
                                        Sums<channels, columns>& sums) {
  constexpr int window = columns + (kernel_w - 1) / stride_w;
  float rows[2][stride_w][pad_to(window, 4)];
#pragma unroll
  for (int phase = 0; phase < stride_w; ++phase) {
    read_row<columns, window>(upper + phase * phase_pitch, rows[0][phase]);
    read_row<columns, window>(lower + phase * phase_pitch, rows[1][phase]);
  }
#pragma unroll
  for (int kw = 0; kw < kernel_w; ++kw) {
    float w[channels];
    read_weights<channels>(weights + kw * channels, w);
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int x = 0; x < columns; ++x)
#pragma unroll
        for (int k = 0; k < channels; ++k)
          sums.of[row][x][k] = fmaf(rows[row][kw % stride_w][x + kw / stride_w], w[k], sums.of[row][x][k]);
  }
}

/// The same for any kernel width, stride and dilation; reads inputs tap by tap.
template <int channels, int columns>
__device__ __forceinline__ void add_row_any(const float* upper, const float* lower, const HaloTile& t,
                                            const float* weights, Sums<channels, columns>& sums) {
  for (int kw = 0; kw < t.window.kernel_w; ++kw) {
    float w[channels];
    read_weights<channels>(weights + kw * channels, w);
#pragma unroll
    for (int x = 0; x < columns; ++x) {
      const int at = x * t.window.stride_w + kw * t.window.dilation_w;
      const float a = upper[at];
      const float b = lower[at];
#pragma unroll
      for (int k = 0; k < channels; ++k) {
        sums.of[0][x][k] = fmaf(a, w[k], sums.of[0][x][k]);
        sums.of[1][x][k] = fmaf(b, w[k], sums.of[1][x][k]);
      }
    }
  }
}

/// What a thread stores: pixels from (row, column), channels from `channel`.
struct Target {
  std::int64_t image;
  int row, column, channel, channels_left;
};

/// Stores `values`, [row][column][channel].
template <typename T, int rows, int columns, int channels>
__device__ __forceinline__ void store(const HaloTile& t, const Target& to,
                                      const float (&values)[rows * columns * channels]) {
  const int all_channels = t.extents.k * t.extents.groups;
  T* const image = static_cast<T*>(t.tensors.y) + to.image * all_channels * t.output.out_h * t.output.out_w;
  const int row_step = t.format.nhwc ? t.output.out_w * all_channels : t.output.out_w;
  const int column_step = t.format.nhwc ? all_channels : 1;
  const int channel_step = t.format.nhwc ? 1 : t.output.out_h * t.output.out_w;
  T* const first = image + to.row * row_step + to.column * column_step + to.channel * channel_step;
  const bool inside =
      to.row + rows <= t.output.out_h && to.column + columns <= t.output.out_w && to.channels_left >= channels;
  constexpr int channel_run = channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : 2;
  constexpr int column_run = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  if (inside && t.format.nhwc && t.extents.k % channel_run == 0) {
#pragma unroll
    for (int pixel = 0; pixel < rows * columns; ++pixel)
#pragma unroll
      for (int k = 0; k < channels; k += channel_run) {
        float part[channel_run];
#pragma unroll
        for (int i = 0; i < channel_run; ++i) part[i] = values[pixel * channels + k + i];
        store_vector<T, channel_run>(first + pixel / columns * row_step + pixel % columns * column_step + k, part);
      }
  } else if (inside && !t.format.nhwc && t.output.out_w % column_run == 0) {
#pragma unroll
    for (int k = 0; k < channels; ++k)
#pragma unroll
      for (int at = 0; at < rows * columns; at += column_run) {
        float part[column_run];
#pragma unroll
        for (int i = 0; i < column_run; ++i) part[i] = values[(at + i) * channels + k];
        store_vector<T, column_run>(first + k * channel_step + at / columns * row_step + at % columns, part);
      }
  } else {
#pragma unroll
    for (int i = 0; i < rows * columns * channels; ++i) {
      const int row = i / channels / columns;
      const int column = i / channels % columns;
      if (to.row + row < t.output.out_h && to.column + column < t.output.out_w && i % channels < to.channels_left)
        first[row * row_step + column * column_step + i % channels * channel_step] = from_f32<T>(values[i]);
    }
  }
}

template <int rows, int columns, int channels>
__device__ __forceinline__ void store_as(const HaloTile& t, const Target& to,
                                         const float (&values)[rows * columns * channels]) {
  if (t.format.type == DType::f32) {
    store<float, rows, columns, channels>(t, to, values);
  } else if (t.format.type == DType::f16) {
    store<__half, rows, columns, channels>(t, to, values);
  } else {
    store<__nv_bfloat16, rows, columns, channels>(t, to, values);
  }
}

/// Maximum, bias, activation, store. Adding a bias and the activations are monotone, so the maximum comes first.
template <int channels, int columns>
__device__ __forceinline__ void finish(const HaloTile& t, Target to, const Sums<channels, columns>& sums) {
  float bias[channels];
#pragma unroll
  for (int k = 0; k < channels; ++k)
    bias[k] = t.tensors.bias != nullptr && k < to.channels_left ? __ldg(t.tensors.bias + to.channel + k) : 0.0f;
  if (t.format.pool) {
    float pooled[columns / 2 * channels];
#pragma unroll
    for (int i = 0; i < columns / 2 * channels; ++i) {
      const int x = i / channels * 2;
      const int k = i % channels;
      pooled[i] = max_or_nan(max_or_nan(sums.of[0][x][k], sums.of[0][x + 1][k]),
                             max_or_nan(sums.of[1][x][k], sums.of[1][x + 1][k]));
    }
    finish_all(pooled, bias, t.format.activation);
    to.row /= 2;
    to.column /= 2;
    store_as<1, columns / 2, channels>(t, to, pooled);
    return;
  }
  float values[2 * columns * channels];
#pragma unroll
  for (int i = 0; i < 2 * columns * channels; ++i)
    values[i] = sums.of[i / channels / columns][i / channels % columns][i % channels];
  finish_all(values, bias, t.format.activation);
  store_as<2, columns, channels>(t, to, values);
}

/// Copies `count` f32, or zeros for a null address; by cp.async where the GPU has it.
template <int count>
__device__ __forceinline__ void copy_elements(const float* from, const void* anything, float* to) {
#if __CUDA_ARCH__ >= 800
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const void* const source = from == nullptr ? anything : from;
  const int bytes = from == nullptr ? 0 : 4 * count;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(source), "n"(4 * count), "r"(bytes)
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < count; ++i) to[i] = from == nullptr ? 0.0f : from[i];
#endif
}

/// The input tile as f32 planes, 0 outside the image, `count` columns an access. Padding and rows are multiples of
/// `count`, so that no access straddles an edge.
template <typename T, int count>
__device__ __forceinline__ void load_planes(const HaloTile& t, const TilePlace& place, int phases, float* to) {
  const int phase_pitch = t.shared.pitch / phases;
  const int interleaved = t.format.nhwc ? t.extents.c : 1;  // channels of a line
  const int pixel = t.format.nhwc ? t.extents.c * t.extents.groups : 1;
  for_lines<T>(t, place, !t.format.nhwc, [&](const Line<T>(&lines)[kLinesAtOnce]) {
    for (int i = threadIdx.x % t.line.lanes * count; i < t.shared.in_columns * interleaved; i += t.line.lanes * count) {
      const int column = interleaved == 1 ? i : i / t.by.channels;
      const int channel = i - column * interleaved;
      const int x = column - t.window.pad_left;
      const bool inside = x >= 0 && x < t.extents.w;
      const int offset = x * pixel + channel;
      const int at = channel * t.shared.plane + (phases == 1 ? column : column / 2 + column % 2 * phase_pitch);
      const auto place_of = [&](const Line<T>& line) {
        return to + line.image * t.shared.image + line.plane * t.shared.plane + line.row * t.shared.pitch + at;
      };
      if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (const Line<T>& line : lines)
          if (line.image >= 0)
            copy_elements<count>(inside && line.from != nullptr ? line.from + offset : nullptr, t.tensors.x,
                                 place_of(line));
      } else {
        float values[kLinesAtOnce][count];
#pragma unroll
        for (int l = 0; l < kLinesAtOnce; ++l) {
          if (inside && lines[l].from != nullptr) {
            load_vector<T, count>(lines[l].from + offset, values[l]);
          } else {
#pragma unroll
            for (int j = 0; j < count; ++j) values[l][j] = 0.0f;
          }
        }
#pragma unroll
        for (int l = 0; l < kLinesAtOnce; ++l)
          if (lines[l].image >= 0) store_vector<float, count>(place_of(lines[l]), values[l]);
      }
    }
  });
}

template <typename T>
__device__ __forceinline__ void load_as(const HaloTile& t, int tile, int phases, float* to) {
  const TilePlace place = tile_place(t, tile);
  if (t.line.vector == 4) {
    load_planes<T, 4>(t, place, phases, to);
  } else if (t.line.vector == 2) {
    load_planes<T, 2>(t, place, phases, to);
  } else {
    load_planes<T, 1>(t, place, phases, to);
  }
}

__device__ __forceinline__ void load_tile(const HaloTile& t, int tile, int phases, float* to) {
  if (t.format.type == DType::f32) {
    load_as<float>(t, tile, phases, to);
  } else if (t.format.type == DType::f16) {
    load_as<__half>(t, tile, phases, to);
  } else {
    load_as<__nv_bfloat16>(t, tile, phases, to);
  }
}

/// Computes the outputs of one tile, whose input lies in shared memory.
template <int channels, int columns, int kernel_w, int stride_w>
__device__ __forceinline__ void compute(const HaloTile& t, int tile, const float* input, const float* weights,
                                        int channel_blocks) {
  constexpr int phases = kernel_w == 0 ? 1 : stride_w;
  const int weights_per_block = t.extents.c * t.window.kernel_h * t.window.kernel_w * channels;
  const int phase_pitch = t.shared.pitch / phases;
  const TilePlace place = tile_place(t, tile);
  const int column_groups = (t.output.wo + columns - 1) / columns;
  const int positions = place.images * place.row_pairs * column_groups;
  for (int task = threadIdx.x; task < channel_blocks * positions; task += blockDim.x) {
    const int channel_block = channel_blocks == 1 ? 0 : task / positions;
    const int position = task - channel_block * positions;
    const int line = position / t.by.columns;
    const int column = (position - line * column_groups) * columns;
    // The last band of an image may be shorter, but then it is one image.
    const int image = place.images == 1 ? 0 : line / t.by.row_pairs;
    const int row = (line - image * place.row_pairs) * 2;
    const float* upper = input + image * t.shared.image + row * t.window.stride_h * t.shared.pitch +
                         (kernel_w == 0 ? column * t.window.stride_w : column);
    const float* w = weights + channel_block * weights_per_block;
    Sums<channels, columns> sums;
#pragma unroll 1
    for (int c = 0; c < t.extents.c; ++c, upper += t.shared.plane) {
      const float* from = upper;
#pragma unroll 1
      for (int kh = 0; kh < t.window.kernel_h;
           ++kh, from += t.window.dilation_h * t.shared.pitch, w += t.window.kernel_w * channels) {
        if constexpr (kernel_w == 0) {
          add_row_any<channels, columns>(from, from + t.window.stride_h * t.shared.pitch, t, w, sums);
        } else {
          add_row<channels, columns, kernel_w, stride_w>(from, from + t.window.stride_h * t.shared.pitch, phase_pitch,
                                                         w, sums);
        }
      }
    }
    const int channel = blockIdx.y * t.chunk + channel_block * channels;
    finish<channels, columns>(t,
                              Target{place.image + image, place.row + row, column, place.group * t.extents.k + channel,
                                     t.extents.k - channel},
                              sums);
  }
}

/// A block keeps its weights in shared memory for all its tiles and prefetches the next tile while it computes one.
template <int channels, int columns, int kernel_w, int stride_w, int threads, int blocks>
__global__ __launch_bounds__(threads, blocks) void few_channels_kernel(const HaloTile t) {
  extern __shared__ float4 shared_memory[];
  constexpr int phases = kernel_w == 0 ? 1 : stride_w;
  float* const weights = reinterpret_cast<float*>(shared_memory);
  const int weights_per_block = t.extents.c * t.window.kernel_h * t.window.kernel_w * channels;
  const int channel_blocks =
      min(t.chunk, t.extents.k - static_cast<int>(blockIdx.y) * t.chunk + channels - 1) / channels;
  const int all_blocks = (t.extents.k + channels - 1) / channels;
  const std::int64_t first_block =
      static_cast<std::int64_t>(blockIdx.z) * all_blocks + blockIdx.y * (t.chunk / channels);
  wait_for_previous_kernel();
  copy_to_shared(static_cast<const float*>(t.tensors.packed) + first_block * weights_per_block, weights,
                 channel_blocks * weights_per_block);
  float* now = weights + pad_to(t.chunk / channels * weights_per_block, 4);
  float* next = now + t.cut.images * t.shared.image + kWindowSlack;
  load_tile(t, blockIdx.x, phases, now);
  end_of_copies();
  for (int tile = blockIdx.x; tile < t.cut.tiles; tile += gridDim.x) {
    if (tile + static_cast<int>(gridDim.x) < t.cut.tiles) load_tile(t, tile + gridDim.x, phases, next);
    end_of_copies();
    wait_for_former_copies();
    __syncthreads();
    compute<channels, columns, kernel_w, stride_w>(t, tile, now, weights, channel_blocks);
    __syncthreads();
    float* const done = now;
    now = next;
    next = done;
  }
}

template <typename T>
__global__ void pack_few_channels(const T* weights, WeightStrides strides, float* packed, HaloTile t, int channels) {
  const int taps = t.window.kernel_h * t.window.kernel_w;
  const int blocks = (t.extents.k + channels - 1) / channels;
  const int count = t.extents.groups * blocks * t.extents.c * taps * channels;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int tap = i / channels % taps;
    const int in = i / channels / taps % t.extents.c;
    const int block = i / channels / taps / t.extents.c % blocks;
    const int group = i / channels / taps / t.extents.c / blocks;
    const int out = block * channels + i % channels;
    packed[i] = out < t.extents.k
                    ? to_f32(weights[(group * t.extents.k + out) * strides.out + in * strides.in +
                                     tap / t.window.kernel_w * strides.row + tap % t.window.kernel_w * strides.column])
                    : 0.0f;
  }
}

template <int channels, int columns, int kernel_w, int stride_w, int threads, int blocks>
constexpr FewChannelsVariant variant(Path path) {
  return {channels,
          columns,
          kernel_w,
          stride_w,
          threads,
          path,
          few_channels_kernel<channels, columns, kernel_w, stride_w, threads, blocks>};
}

constexpr FewChannelsVariant kVariants[] = {
    variant<6, 4, 5, 1, 192, 3>(Path::few_channels_6x4_5),
    variant<8, 6, 5, 1, 384, 1>(Path::few_channels_8x6_5),
    variant<4, 6, 5, 1, 256, 2>(Path::few_channels_4x6_5),
    variant<8, 4, 7, 2, 256, 2>(Path::few_channels_8x4_7_stride2),
    variant<8, 4, 3, 1, 256, 2>(Path::few_channels_8x4_3),
    variant<8, 4, 3, 2, 256, 2>(Path::few_channels_8x4_3_stride2),
    variant<8, 4, 0, 0, 256, 2>(Path::few_channels_any),
};

/// Products that the variant's register tiles compute for two output rows of all channels, padding included.
std::int64_t computed(const FewChannelsVariant& v, const Conv2dProblem& p) {
  const std::int64_t slowdown = v.kernel_w == 0 ? 3 : 2;
  return slowdown * pad_to(static_cast<int>(p.k / p.groups), v.channels) *
         pad_to(static_cast<int>(2 * p.out_w() / (p.pool.none() ? 2 : 1)), v.columns);
}

const FewChannelsVariant& choose_variant(const Conv2dProblem& p) {
  const FewChannelsVariant* best = nullptr;
  for (const FewChannelsVariant& v : kVariants) {
    const bool fits = v.kernel_w == 0 || (v.kernel_w == p.s && v.stride_w == p.stride_w && p.dilation_w == 1);
    if (fits && (best == nullptr || computed(v, p) < computed(*best, p))) best = &v;
  }
  return *best;
}

/// Fills in pitches for the variant and returns the bytes of shared memory.
std::size_t lay_out(HaloTile& t, const FewChannelsVariant& v) {
  const int phases = v.kernel_w == 0 ? 1 : v.stride_w;
  const int columns = pad_to(t.output.wo, v.columns);
  t.shared.in_columns = (columns - 1) * t.window.stride_w + (t.window.kernel_w - 1) * t.window.dilation_w + 1;
  t.shared.pitch = phases * pad_to((t.shared.in_columns + phases - 1) / phases + 3, 4);
  t.shared.plane = t.cut.in_rows * t.shared.pitch;
  t.by.columns = divisor(columns / v.columns);
  t.shared.image = t.extents.c * t.shared.plane;
  const bool one_phase_rows = phases == 1 && (!t.format.nhwc || (t.extents.c == 1 && t.extents.groups == 1));
  t.line.vector = !one_phase_rows                                      ? 1
                  : t.extents.w % 4 == 0 && t.window.pad_left % 4 == 0 ? 4
                  : t.extents.w % 2 == 0 && t.window.pad_left % 2 == 0 ? 2
                                                                       : 1;
  const int accesses = (t.shared.in_columns + t.line.vector - 1) / t.line.vector * (t.format.nhwc ? t.extents.c : 1);
  t.line.lanes = accesses <= 8 ? 8 : accesses <= 16 ? 16 : 32;
  const int weights = pad_to(t.chunk * t.extents.c * t.window.kernel_h * t.window.kernel_w, 4);
  return (static_cast<std::size_t>(weights) +
          2 * (static_cast<std::size_t>(t.cut.images) * t.shared.image + kWindowSlack)) *
         sizeof(float);
}

/// The smallest tile: one row pair, one block of channels.
HaloTile smallest_tile(const Conv2dProblem& p, const FewChannelsVariant& v) {
  HaloTile t = halo_tile(p);
  t.chunk = v.channels;
  cut_rows(t, 1, 1);
  return t;
}

double tile_cost(const HaloTile& t, const FewChannelsVariant& v, int threads) {
  const int column_groups = (t.output.wo + v.columns - 1) / v.columns;
  const int tasks =
      t.cut.images * t.cut.row_pairs * column_groups * ((std::min(t.chunk, t.extents.k) + v.channels - 1) / v.channels);
  const double rounds = (tasks + threads - 1) / threads;
  const double task =
      2.0 * v.columns * v.channels * (t.extents.c * t.window.kernel_h * t.window.kernel_w * 1.1 + 8) + 200;
  const double load = static_cast<double>(t.cut.images) * t.shared.image / t.line.vector * 12;
  return rounds * (threads / 32) * task + load / 32 + 600;
}

/// The tile for each number of output channels a block.
TileChoice choose_chunk(const Conv2dProblem& p, const FewChannelsVariant& v, const cudaDeviceProp& device) {
  const TileKernel kernel{.kernel = v.kernel,
                          .most_threads = v.threads,
                          .lay_out = [&v](HaloTile& t) { return lay_out(t, v); },
                          .tile_cost = [&v](const HaloTile& t, int threads) { return tile_cost(t, v, threads); }};
  TileChoice best;
  HaloTile t = halo_tile(p);
  for (int chunk = pad_to(t.extents.k, v.channels);; chunk = pad_to((chunk + 1) / 2, v.channels)) {
    t.chunk = chunk;
    const TileChoice choice = choose_tile(t, kernel, device);
    if (choice.threads > 0 && (best.threads == 0 || choice.cost < best.cost)) best = choice;
    if (chunk == v.channels) return best;
  }
}

/// What a task of a warp, one register tile a lane, asks of a multiprocessor: instructions, and cycles of shared memory
/// and of stores.
struct TaskCounts {
  double products = 0, loads = 0, loaded = 0, conflicts = 0, stores = 0, stored = 0;
};

/// Where lanes read single floats, their distances decide about conflicts of banks.
void count_loads(const HaloTile& t, const FewChannelsVariant& v, TaskCounts& n) {
  constexpr int kLanes = 32, kBanks = 32;
  const double rows = t.extents.c * t.window.kernel_h, taps = rows * t.window.kernel_w;
  const double weights = taps * v.channels / (v.channels % 4 == 0 ? 4 : 2);
  if (v.kernel_w == 0) {
    const double inputs = 2 * v.columns * taps;
    const int apart = std::gcd(v.columns * t.window.stride_w, kBanks);
    const int lanes = std::min(kLanes, (t.output.wo + v.columns - 1) / v.columns);
    n.loads = weights + inputs;
    n.loaded = weights + inputs * std::max(1.0, static_cast<double>(lanes) * apart / kBanks);
    n.conflicts = inputs * apart;
    return;
  }
  const int vector = v.columns % 4 == 0 ? 4 : 2, window = v.columns + (v.kernel_w - 1) / v.stride_w;
  const double inputs = 2 * v.stride_w * rows * pad_to(window, vector) / vector;
  n.loads = weights + inputs;
  n.loaded = weights + inputs * vector;
}

/// In NHWC each lane's store touches its own lines; in NCHW lanes have neighbouring pixels.
void count_stores(const HaloTile& t, const FewChannelsVariant& v, TaskCounts& n) {
  constexpr int kLanes = 32, kLine = 128;
  const int element = t.format.type == DType::f32 ? 4 : 2;
  const double outputs = 2.0 * v.columns * v.channels / (t.format.pool ? 4 : 1);
  if (t.format.nhwc) {
    const int run = v.channels % 8 == 0 ? 8 : v.channels % 4 == 0 ? 4 : 2;
    n.stores = t.extents.k % run == 0 ? outputs * element / std::min(16, run * element) : outputs;
    n.stored = n.stores * kLanes;
    return;
  }
  const int run = v.columns % 4 == 0 ? 4 : 2;
  const bool vectors = t.output.out_w % run == 0;
  n.stores = vectors ? outputs / run : outputs;
  n.stored = vectors ? n.stores * std::max(1, run * element * kLanes / kLine) : outputs * run * element / 2;
}

/// Instructions that load a tile's input, of a warp.
double tile_loads(const HaloTile& t) {
  const int interleaved = t.format.nhwc ? t.extents.c : 1;
  const int accesses = (t.shared.in_columns + t.line.vector - 1) / t.line.vector * interleaved;
  return static_cast<double>(t.cut.images) * t.cut.in_rows * t.extents.c / interleaved *
         pad_to(accesses, t.line.lanes) / 32;
}

/// Cycles where nothing else is said. Fitted to the picks of 1346 first layers on an H200 (1 to 8 channels, windows of
/// 1 to 16, strides of 1 to 16, f32, f16 and bf16, both layouts); of 574 others the kernel of the least estimate among
/// all takes 1.02 of the fastest.
double seconds_of(const TileChoice& choice, const FewChannelsVariant& v) {
  constexpr double kHertz = 1.755e9, kStart = 4910, kDeviceBytes = 3.6e12, kOverlap = 1.8;
  constexpr double kProduct = 0.22, kLoad = 1.8, kLoaded = 0.75, kConflict = 0.17, kStore = 5, kStored = 2.2;
  constexpr double kTileLoad = 32, kTileLoad16 = 20;  // the latter: more where elements are converted
  constexpr double kLatency = 1.7, kTileLatency = 1380, kWeight = 0.098;
  const HaloTile& t = choice.tile;
  const bool half = t.format.type != DType::f32;
  TaskCounts n{.products = 2.0 * v.columns * v.channels * t.extents.c * t.window.kernel_h * t.window.kernel_w};
  count_loads(t, v, n);
  count_stores(t, v, n);
  const double task = std::max(kProduct * n.products + kLoad * n.loads + kStore * n.stores,
                               kLoaded * n.loaded + kConflict * n.conflicts) +
                      kStored * n.stored;
  const std::int64_t column_groups = (t.output.wo + v.columns - 1) / v.columns;
  const std::int64_t tasks =
      t.cut.images * t.cut.row_pairs * column_groups * ceil_div(std::min(t.chunk, t.extents.k), v.channels);
  const double tile =
      static_cast<double>(ceil_div(tasks, 32)) * task + tile_loads(t) * (kTileLoad + (half ? kTileLoad16 : 0));
  const double latency =
      static_cast<double>(ceil_div(tasks, choice.threads)) * kLatency * (n.products + 2 * n.loads) + kTileLatency;
  const double weights = 4.0 * t.chunk * t.extents.c * t.window.kernel_h * t.window.kernel_w;
  const double cycles =
      kStart + kWeight * weights +
      static_cast<double>(choice.rounds) * std::max(static_cast<double>(choice.together) * tile, latency);
  const double computing = cycles / kHertz, moving = halo_bytes(t) / kDeviceBytes;
  return std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap);
}

class FewChannelsPlan final : public Conv2dPlan {
 public:
  FewChannelsPlan(const Conv2dProblem& problem, const cudaDeviceProp& device);

  Conv2dDescription description() const override;
  Packing packing() const override { return packing_of(problem_, "few_channels", {variant_->channels}); }
  std::size_t packed_bytes() const override;
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  Conv2dProblem problem_;
  const FewChannelsVariant* variant_;
  TileChoice choice_;
  bool overlaps_;
};

FewChannelsPlan::FewChannelsPlan(const Conv2dProblem& problem, const cudaDeviceProp& device) : problem_(problem) {
  variant_ = &choose_variant(problem);
  choice_ = choose_chunk(problem, *variant_, device);
  overlaps_ = may_overlap(choice_, device);
}

Conv2dDescription FewChannelsPlan::description() const {
  const FewChannelsVariant& v = *variant_;
  return {.kernel = "few_channels",
          .tile = "2x" + std::to_string(v.columns) + " pixels x " + std::to_string(v.channels) + " channels a thread" +
                  (v.kernel_w == 0 ? ", any kernel width" : ""),
          .staging = "block of " + std::to_string(choice_.threads) + " threads, " +
                     std::to_string(choice_.tile.cut.images) +
                     (choice_.tile.cut.images == 1 ? " image, " : " images, ") +
                     std::to_string(2 * choice_.tile.cut.row_pairs) + " rows, " + std::to_string(choice_.tile.chunk) +
                     " channels: " + std::to_string(choice_.shared_bytes) + " bytes of shared memory",
          .fusion = "bias, activation and pool in registers"};
}

std::size_t FewChannelsPlan::packed_bytes() const {
  return sizeof(float) * static_cast<std::size_t>(choice_.tile.extents.groups) *
         pad_to(choice_.tile.extents.k, variant_->channels) * choice_.tile.extents.c * choice_.tile.window.kernel_h *
         choice_.tile.window.kernel_w;
}

void FewChannelsPlan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  constexpr int threads = 256;
  const auto count = static_cast<std::int64_t>(packed_bytes() / sizeof(float));
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(ceil_div(count, threads), 1024));
  with_type(choice_.tile.format.type, [&](auto zero) {
    pack_few_channels<<<blocks, threads, 0, stream>>>(static_cast<const decltype(zero)*>(weights), strides,
                                                      static_cast<float*>(packed), choice_.tile, variant_->channels);
  });
  check_launch("pack_few_channels");
}

void FewChannelsPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                          cudaStream_t stream) const {
  HaloTile t = choice_.tile;
  t.tensors = {x, packed, bias, y};
  launch(variant_->kernel,
         {tile_grid(t, choice_.blocks), choice_.threads, static_cast<int>(choice_.shared_bytes), overlaps_}, stream, t);
  note_path(variant_->path);
}

}  // namespace

std::string FewChannels::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const std::string refusal = halo_tile_refusal(p);
  if (!refusal.empty()) return refusal;
  const FewChannelsVariant& v = choose_variant(p);
  HaloTile t = smallest_tile(p, v);
  const std::size_t bytes = lay_out(t, v);
  if (bytes <= device.sharedMemPerBlockOptin) return "";
  return "two output rows need " + std::to_string(bytes) + " bytes of shared memory; a block of the device has " +
         std::to_string(device.sharedMemPerBlockOptin);
}

double FewChannels::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const FewChannelsVariant& v = choose_variant(p);
  return seconds_of(choose_chunk(p, v, device), v);
}

std::unique_ptr<Conv2dPlan> FewChannels::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<FewChannelsPlan>(problem, device);
}

}  // namespace gable::cuda
