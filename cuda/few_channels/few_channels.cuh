// The kernel: a block's input tile lies in shared memory as [image][channel][row][column phase][column], phases being
// the columns modulo the stride, so that a warp's reads of neighbouring outputs are contiguous. Per tap and channel a
// thread does 2 x columns x channels FMA for channels / 4 broadcast reads of weights; a row of inputs in registers
// serves all taps of the row. Warps take the same channels where they can.
#pragma once

#include "cuda/common/halo_tile.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/vector_access.cuh"
#include "cuda/few_channels/few_channels_cut.h"

namespace gable::cuda::few_channels {

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

}  // namespace gable::cuda::few_channels
