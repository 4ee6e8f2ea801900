// Device code of implicit.h: where a row's pixel lies, which tap and channel a place in the depth is, and the
// epilogue.
#pragma once

#include "cuda/common/async_copy.cuh"
#include "cuda/common/check.h"
#include "cuda/common/device_code.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/gemm/implicit.h"

namespace gable::cuda {

__device__ __forceinline__ int divide(int value, const Divisor& by) {
  const auto n = static_cast<unsigned>(value);
  return static_cast<int>((__umulhi(n, by.multiplier) + n) >> by.shift);
}

/// The input pixel under a row's first tap; offset in elements, of the group's first channel. Lies in the padding or
/// outside everything where row or column is out of range.
struct RowPixel {
  int row, column, offset;
};

__device__ __forceinline__ RowPixel row_pixel(const ImplicitGemm& g, int row, int group) {
  if (row >= g.rows) return {.row = -(1 << 30), .column = 0, .offset = 0};
  if (g.line) return {.row = 0, .column = 0, .offset = row * g.c + group * g.group_c};
  const int pixel = g.pooled ? row >> 2 : row;
  const int lines = divide(pixel, g.by_out_w), image = divide(lines, g.by_out_h);
  int column = pixel - lines * g.out_w;
  int line = lines - image * g.out_h;
  if (g.pooled) {
    line = 2 * line + (row >> 1 & 1);
    column = 2 * column + (row & 1);
  }
  const int h = line * g.stride_h - g.pad_top, w = column * g.stride_w - g.pad_left;
  return {.row = h, .column = w, .offset = ((image * g.h + h) * g.w + w) * g.c + group * g.group_c};
}

/// A place in the depth, walked in steps.
class DepthCursor {
 public:
  __device__ DepthCursor(const ImplicitGemm& g, int depth) : channel_(depth), end_(g.r) {
    if (depth < g.padded_c) return;
    const int tap = depth / g.padded_c;
    channel_ = depth % g.padded_c;
    r_ = tap / g.s;
    s_ = tap % g.s;
  }

  __device__ __forceinline__ void advance(const ImplicitGemm& g, int step) {
    channel_ += step;
    while (channel_ >= g.padded_c) {
      channel_ -= g.padded_c;
      if (++s_ == g.s) {
        s_ = 0;
        ++r_;
      }
    }
  }

  __device__ __forceinline__ int channel() const { return channel_; }

  /// Whether the tap lies in the image; `offset` becomes the element's.
  __device__ __forceinline__ bool locate(const ImplicitGemm& g, const RowPixel& pixel, int& offset) const {
    const int h = r_ * g.dilation_h, w = s_ * g.dilation_w;
    offset = pixel.offset + (h * g.w + w) * g.c + channel_;
    return r_ < end_ && static_cast<unsigned>(pixel.row + h) < static_cast<unsigned>(g.h) &&
           static_cast<unsigned>(pixel.column + w) < static_cast<unsigned>(g.w);
  }

 private:
  int channel_, r_ = 0, s_ = 0, end_;
};

/// A block's place in the product: see GemmGrid. Stages are counted from the depth's beginning.
struct BlockPlace {
  int row, column, group, part;
  int first, last;  // stages
};

template <int kRows, int kColumns>
__device__ __forceinline__ BlockPlace block_place(const ImplicitGemm& g, int splits, int stage_depth) {
  const int across = (g.columns + kColumns - 1) / kColumns, tile = static_cast<int>(blockIdx.x);
  const int row = across == 1 ? tile : tile / across, y = static_cast<int>(blockIdx.y);
  const int group = splits == 1 ? y : y / splits, part = y - group * splits;
  const int stages = (g.depth + stage_depth - 1) / stage_depth;
  const int each = splits == 1 ? stages : stages / splits, more = stages - each * splits;
  return {.row = row * kRows,
          .column = (tile - row * across) * kColumns,
          .group = group,
          .part = part,
          .first = each * part + min(part, more),
          .last = each * (part + 1) + min(part + 1, more)};
}

/// Blocks of a kernel that a multiprocessor holds.
inline int resident_blocks(const void* kernel, int threads, int shared_bytes) {
  int resident = 0;
  GABLE_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads,
                                                                 static_cast<std::size_t>(shared_bytes)));
  return resident;
}

/// A kernel compiled for one tile: `Function` takes the product, the number of parts and the operands.
template <typename Function>
struct GemmKernel {
  Function* function;
  int threads, shared_bytes;

  /// Called once for a plan, so that runs only launch.
  void prepare(const cudaDeviceProp& device) const {
    GABLE_CUDA_CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(device.sharedMemPerBlockOptin)));
  }
};

/// 16 bytes of a row's pixel at the cursor. `vector` says that channels come in whole, aligned 16 bytes; else elements
/// of 4 bytes are copied one at a time, and smaller ones through registers.
template <typename T, bool vector>
__device__ __forceinline__ void copy_pixel(const ImplicitGemm& g, const T* x, const RowPixel& pixel,
                                           const DepthCursor& cursor, T* shared) {
  constexpr int kElements = 16 / sizeof(T);
  int offset;
  const bool inside = cursor.locate(g, pixel, offset);
  if constexpr (vector) {
    copy_async<16>(shared, inside ? x + offset : x, inside);
  } else {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const bool valid = inside && cursor.channel() + i < g.group_c;
      if constexpr (sizeof(T) == 4) {
        copy_async<4>(shared + i, valid ? x + offset + i : x, valid);
      } else {
        shared[i] = valid ? x[offset + i] : T(0.0f);
      }
    }
  }
}

/// The bias of kCount neighbouring columns, `at` columns into the group.
template <int kCount>
__device__ __forceinline__ void load_bias(const ImplicitGemm& g, const float* bias, int group, int at,
                                          float (&values)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    values[j] = g.bias && at + j < g.columns ? __ldg(bias + group * g.columns + at + j) : 0.0f;
  }
}

/// Stores kCount neighbouring columns of one output pixel, `at` columns into the group.
template <typename T, int kCount>
__device__ __forceinline__ void store_columns(const ImplicitGemm& g, T* y, int pixel, int group, int at,
                                              const float (&outputs)[kCount]) {
  struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) Values {
    T v[kCount];
  } values;
#pragma unroll
  for (int j = 0; j < kCount; ++j) values.v[j] = from_f32<T>(outputs[j]);
  T* to = y + static_cast<std::int64_t>(pixel) * g.k + group * g.columns + at;
  if (g.columns % kCount == 0 && g.k % kCount == 0) {
    if (at < g.columns) *reinterpret_cast<Values*>(to) = values;
    return;
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (at + j < g.columns) to[j] = values.v[j];
  }
}

/// One branch for all of them.
template <int kCount>
__device__ __forceinline__ void activate_all(float (&values)[kCount], Activation activation) {
  if (activation == Activation::relu) {
#pragma unroll
    for (float& value : values) value = max_or_nan(value, 0.0f);
  } else if (activation == Activation::tanh) {
#pragma unroll
    for (float& value : values) value = tanh_f32(value);
  }
}

template <int kCount>
__device__ __forceinline__ void max_into(float (&best)[kCount], const float (&other)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) best[j] = max_or_nan(best[j], other[j]);
}

/// Rows of a thread's sums from pools' windows, four neighbouring rows: into the first of them.
template <int kRows, int kCount>
__device__ __forceinline__ void pool_rows(float (&sums)[kRows][kCount]) {
#pragma unroll
  for (int i = 0; i < kRows; i += 4) {
#pragma unroll
    for (int j = 1; j < 4; ++j) max_into(sums[i], sums[i + j]);
  }
}

/// A thread's kRows neighbouring rows from `row` on, each with kCount columns; kRows is a multiple of a pool's four.
template <typename T, int kRows, int kCount>
__device__ __forceinline__ void store_rows(const ImplicitGemm& g, T* y, int row, int group, int at,
                                           const float (&outputs)[kRows][kCount]) {
  if (g.pooled) {
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      if (row + i < g.rows) store_columns(g, y, (row + i) / 4, group, at, outputs[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row + i < g.rows) store_columns(g, y, row + i, group, at, outputs[i]);
    }
  }
}

/// Stores rows of one part of the depth to the workspace.
template <int kRows, int kCount>
__device__ __forceinline__ void store_part(const ImplicitGemm& g, float* parts, int part, int row, int group, int at,
                                           const float (&sums)[kRows][kCount]) {
  if (at >= g.padded_k) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (row + i >= g.rows) break;
    const std::int64_t place = (static_cast<std::int64_t>(part) * g.rows + row + i) * g.groups + group;
#pragma unroll
    for (int j = 0; j < kCount; j += 4) {
      *reinterpret_cast<float4*>(parts + place * g.padded_k + at + j) =
          make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
    }
  }
}

/// Adds up the parts: each thread takes four columns of one output pixel.
template <typename T>
__global__ void add_parts_kernel(ImplicitGemm g, int splits, const float* parts, const float* bias, T* y) {
  wait_for_previous_kernel();
  const int quads = g.padded_k / 4;
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int at = static_cast<int>(index % quads) * 4;
  const int group = static_cast<int>(index / quads % g.groups);
  const std::int64_t pixel = index / quads / g.groups;
  const int window = g.pooled ? 4 : 1;
  if (pixel * window >= g.rows) return;
  float best[4];
  for (int i = 0; i < window; ++i) {
    float sum[4] = {};
    for (int part = 0; part < splits; ++part) {
      const std::int64_t place = (static_cast<std::int64_t>(part) * g.rows + pixel * window + i) * g.groups + group;
      const float4 v = *reinterpret_cast<const float4*>(parts + place * g.padded_k + at);
      sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) best[j] = i == 0 ? sum[j] : max_or_nan(best[j], sum[j]);
  }
  float added[4];
  load_bias(g, bias, group, at, added);
#pragma unroll
  for (int j = 0; j < 4; ++j) best[j] = activate(best[j] + added[j], g.activation);
  store_columns(g, y, static_cast<int>(pixel), group, at, best);
}

template <typename T>
void add_parts(const ImplicitGemm& g, int splits, const float* parts, const float* bias, T* y, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const std::int64_t threads = std::int64_t{g.rows} / (g.pooled ? 4 : 1) * g.groups * (g.padded_k / 4);
  const LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(threads, kThreads))), kThreads, 0, launches_overlap()};
  launch(add_parts_kernel<T>, shape, stream, g, splits, parts, bias, y);
}

}  // namespace gable::cuda
