// Registers: the sums of `columns` outputs of `lanes` channels, and the inputs of up to four taps of a kernel row,
// whose loads are in flight together. Where the columns slide, columns + 3 inputs serve 4 x columns products.
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/vector_access.cuh"
#include "cuda/depthwise/any.h"

namespace gable::cuda {
namespace {

/// What a thread computes; the input coordinates are those of its first output's first tap.
struct AnyPlace {
  std::int64_t image;
  int vector, row, column, in_row, in_column;
};

__device__ __forceinline__ AnyPlace any_place(const DepthwiseAny& d, std::int64_t index, int columns) {
  const auto next = [&index](int extent) {
    const std::int64_t rest = index / extent;
    const int at = static_cast<int>(index - rest * extent);
    index = rest;
    return at;
  };
  AnyPlace p;
  if (d.nhwc) p.vector = next(d.cut.vectors);
  if (d.turned) p.row = next(d.extents.ho);  // neighbouring threads have neighbouring pixels
  const int group = next(d.cut.column_groups), phase = next(d.cut.step_w);
  if (!d.turned) p.row = next(d.extents.ho);
  if (!d.nhwc) p.vector = next(d.cut.vectors);
  p.image = index;
  p.column = phase + group * columns * d.cut.step_w;
  p.in_row = p.row * d.window.stride_h - d.window.pad_top;
  p.in_column = p.column * d.window.stride_w - d.window.pad_left;
  return p;
}

template <typename T, int lanes, int columns, bool slides>
struct AnySums {
  float of[columns][lanes] = {};

  /// Adds `taps` taps of a kernel row. `column` is that of the first output's first tap, `from` the address of the
  /// row's first pixel.
  template <int taps>
  __device__ __forceinline__ void add(const DepthwiseAny& d, const T* from, int column, const T* weights) {
    // Runs of inputs: one for all taps, or one a tap.
    constexpr int runs = slides ? 1 : taps, run = slides ? columns + taps - 1 : columns, pixels = runs * run;
    const int step = slides ? d.window.dilation_w : d.window.stride_w * d.cut.step_w;
    float in[pixels][lanes];
    if (column >= 0 && column + (run - 1) * step + (runs - 1) * d.window.dilation_w < d.extents.w) {
      const std::int64_t hop = step * d.in.pixel, run_hop = d.window.dilation_w * d.in.pixel;
      from += column * d.in.pixel;
#pragma unroll
      for (int i = 0; i < pixels; ++i) load_vector<T, lanes>(from + i / run * run_hop + i % run * hop, in[i]);
    } else {
#pragma unroll
      for (int i = 0; i < pixels; ++i) {
        const int at = column + i / run * d.window.dilation_w + i % run * step;
        const bool inside = at >= 0 && at < d.extents.w;
        // Without a branch the loads of all pixels are in flight together.
        load_vector<T, lanes>(from + (inside ? at : 0) * d.in.pixel, in[i]);
#pragma unroll
        for (int k = 0; k < lanes; ++k) in[i][k] = inside ? in[i][k] : 0.0f;
      }
    }
#pragma unroll
    for (int tap = 0; tap < taps; ++tap) {
      float weight[lanes];
      load_vector<T, lanes>(weights + tap * d.weight_tap, weight);
#pragma unroll
      for (int i = 0; i < columns; ++i)
#pragma unroll
        for (int k = 0; k < lanes; ++k) {
          of[i][k] = fmaf(in[slides ? i + tap : tap * run + i][k], weight[k], of[i][k]);
        }
    }
  }

  /// Adds a kernel row, four taps at a time.
  __device__ __forceinline__ void add_row(const DepthwiseAny& d, const T* from, int column, const T* weights) {
    const int taps = d.window.kernel_w;
    int tap = 0;
    for (; tap + 4 <= taps; tap += 4) add<4>(d, from, column + tap * d.window.dilation_w, weights + tap * d.weight_tap);
    column += tap * d.window.dilation_w, weights += tap * d.weight_tap;
    if (taps - tap == 3) {
      add<3>(d, from, column, weights);
    } else if (taps - tap == 2) {
      add<2>(d, from, column, weights);
    } else if (taps - tap == 1) {
      add<1>(d, from, column, weights);
    }
  }
};

template <typename T, int lanes, int columns, bool slides>
__global__ __launch_bounds__(kDepthwiseAnyThreads) void depthwise_any(const DepthwiseAny d) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kDepthwiseAnyThreads + threadIdx.x;
  if (index >= d.cut.threads) return;
  const AnyPlace p = any_place(d, index, columns);
  const int channel = p.vector * lanes;
  const int in_channel = d.extents.multiplier == 1 ? channel : channel / d.extents.multiplier;
  const T* const x = static_cast<const T*>(d.tensors.x) + p.image * d.in.image + in_channel * d.in.channel;
  const T* weights = static_cast<const T*>(d.tensors.packed) + channel;

  wait_for_previous_kernel();
  AnySums<T, lanes, columns, slides> sums;
  for (int kh = 0; kh < d.window.kernel_h; ++kh, weights += d.weight_row) {
    const int row = p.in_row + kh * d.window.dilation_h;
    if (row >= 0 && row < d.extents.h) sums.add_row(d, x + row * d.in.row, p.in_column, weights);
  }

  float bias[lanes] = {};
  if (d.tensors.bias != nullptr) load_vector<float, lanes>(d.tensors.bias + channel, bias);
  T* const y = static_cast<T*>(d.tensors.y) + p.image * d.out.image + channel * d.out.channel + p.row * d.out.row;
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    finish_all<lanes>(sums.of[i], bias, d.activation);
    const int column = p.column + i * d.cut.step_w;
    if (column < d.extents.wo) store_vector<T, lanes>(y + column * d.out.pixel, sums.of[i]);
  }
}

template <typename T, int lanes, int columns, bool slides>
DepthwiseAnyVariant variant() {
  return {lanes, columns, slides, depthwise_any<T, lanes, columns, slides>};
}

template <typename T, int lanes>
DepthwiseAnyVariant variant(bool slides, bool half) {
  if (slides) return half ? variant<T, lanes, 4, true>() : variant<T, lanes, 8, true>();
  return half ? variant<T, lanes, 2, false>() : variant<T, lanes, 4, false>();
}

template <typename T>
DepthwiseAnyVariant variant(int lanes, bool slides, bool half) {
  return lanes == 4   ? variant<T, 4>(slides, half)
         : lanes == 2 ? variant<T, 2>(slides, half)
                      : variant<T, 1>(slides, half);
}

}  // namespace

DepthwiseAnyVariant depthwise_any_variant(DType dtype, int lanes, bool slides, bool half) {
  switch (dtype) {
    case DType::f16:
      return variant<__half>(lanes, slides, half);
    case DType::bf16:
      return variant<__nv_bfloat16>(lanes, slides, half);
    default:
      return variant<float>(lanes, slides, half);
  }
}

}  // namespace gable::cuda
