// Sums of the output rows that one input row contributes to, while a thread goes down the rows: slot 0 is the newest
// row, the last slot the one that is finished next. A step is `stride` input rows, after which every row moves up a
// slot; the first product of a step moves it, at no cost.
#pragma once

#include "cuda/common/device_code.cuh"

namespace gable::cuda {

__device__ __forceinline__ float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
__device__ __forceinline__ float2 multiply_add(float2 a, float2 b, float2 sum) {
  return {fmaf(a.x, b.x, sum.x), fmaf(a.y, b.y, sum.y)};
}

/// `Value` is f32 of one or two channels; `columns` neighbouring outputs, `stride` both ways.
template <typename Value, int window, int stride, int columns>
struct SlidingSums {
  static constexpr int kSlots = (window + stride - 1) / stride;
  static constexpr int kPixels = (columns - 1) * stride + window;  // of an input row

  Value of[kSlots][columns] = {};

  /// Input row `phase` of a step. Rows start as `bias`; `weight(tap)` is a weight; `inside`: the input row lies inside
  /// the image; `takes(slot)`: the slot's row is wanted. Other rows have undefined sums.
  template <typename Weight, typename Takes>
  __device__ __forceinline__ void add_row(int phase, const Value (&in)[kPixels], Value bias, bool inside, Weight weight,
                                          Takes takes) {
    const bool moves = phase == 0;
#pragma unroll
    for (int slot = kSlots - 1; slot >= 0; --slot) {
      const int kh = phase + stride * slot;
      if (kh >= window) continue;
      if (inside && takes(slot)) {
#pragma unroll
        for (int kw = 0; kw < window; ++kw) {
          const Value factor = weight(kh * window + kw);
#pragma unroll
          for (int i = 0; i < columns; ++i) {
            const Value before = kw > 0 || !moves ? of[slot][i] : slot > 0 ? of[slot - 1][i] : bias;
            of[slot][i] = multiply_add(in[i * stride + kw], factor, before);
          }
        }
      } else if (moves) {
#pragma unroll
        for (int i = 0; i < columns; ++i) of[slot][i] = slot > 0 ? of[slot - 1][i] : bias;
      }
    }
  }

  __device__ __forceinline__ Value (&finished())[columns] { return of[kSlots - 1]; }
};

}  // namespace gable::cuda
