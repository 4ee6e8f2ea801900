// Device code of implicit.h: where a row's pixel lies, and which tap and channel a place in the depth is.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/implicit.h"

namespace gable::cuda {

/// The input pixel under a row's first tap; offset in elements, of the group's first channel. Lies in the padding or
/// outside everything where row or column is out of range.
struct RowPixel {
  int row, column, offset;
};

__device__ __forceinline__ RowPixel row_pixel(const ImplicitGemm& g, int row, int group) {
  if (row >= g.rows) return {.row = -(1 << 30), .column = 0, .offset = 0};
  int pixel = g.pooled ? row >> 2 : row;
  int column = pixel % g.out_w;
  pixel /= g.out_w;
  int line = pixel % g.out_h;
  const int image = pixel / g.out_h;
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
  __device__ DepthCursor(const ImplicitGemm& g, int depth) {
    const int tap = depth / g.padded_c;
    channel_ = depth % g.padded_c;
    r_ = tap / g.s;
    s_ = tap % g.s;
    end_ = g.taps / g.s;
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
  int channel_, r_, s_, end_;
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

}  // namespace gable::cuda
