// The description of a convolution as the CUDA kernels take it: plain numbers, passed to kernels by value.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/common/types.h"

namespace gable::cuda {

/// A window of 1×1 with stride 1 is no pool. Windows lie wholly inside the convolution's output (floor division).
struct PoolWindow {
  std::int64_t h = 1, w = 1, stride_h = 1, stride_w = 1;

  constexpr bool none() const { return h == 1 && w == 1 && stride_h == 1 && stride_w == 1; }
  constexpr bool is_2x2() const { return h == 2 && w == 2 && stride_h == 2 && stride_w == 2; }
};

struct Conv2dProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;  // input
  std::int64_t k = 1, r = 1, s = 1;         // output channels, kernel
  std::int64_t ho = 1, wo = 1;              // the convolution's output; right and bottom padding follow from it
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  Type type = Type::f32;     // of x, weights and y; bias is f32
  Math math = Math::strict;  // of f32 products
  bool nhwc = true;          // else nchw, for x and y
  bool bias = false;
  Activation activation = Activation::none;
  PoolWindow pool{};

  constexpr std::int64_t out_h() const { return (ho - pool.h) / pool.stride_h + 1; }
  constexpr std::int64_t out_w() const { return (wo - pool.w) / pool.stride_w + 1; }
  constexpr std::int64_t group_c() const { return c / groups; }
  constexpr std::int64_t group_k() const { return k / groups; }
  constexpr std::int64_t x_elements() const { return n * c * h * w; }
  constexpr std::int64_t conv_elements() const { return n * k * ho * wo; }  // before the pool
  constexpr std::int64_t y_elements() const { return n * k * out_h() * out_w(); }
};

/// Where weight (o, i, kh, kw) lies, in elements: o*out + i*in + kh*row + kw*column. i counts within a group.
struct WeightStrides {
  std::int64_t out, in, row, column;
};

/// Of dense weights in OIHW order.
constexpr WeightStrides dense_strides(const Conv2dProblem& p) {
  const std::int64_t taps = p.r * p.s;
  return {p.group_c() * taps, taps, p.s, 1};
}

/// What a kernel's plan decided, in words.
struct Conv2dDescription {
  std::string kernel;   // as ?kernel= takes it
  std::string tile;     // output tile of a block and of a thread or warp
  std::string staging;  // how operands come in: shared memory, stages, reorders
  std::string fusion;   // where bias, activation and pool happen
  bool fused = true;    // the whole epilogue runs inside the kernel
};

}  // namespace gable::cuda
