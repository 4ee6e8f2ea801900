// Ops as kernels take them: plain numbers with every extent resolved, for CPU and GPU kernels alike. A backend makes
// them from the ops of gable/ops.h; kernels pass them by value, also into device code.
#pragma once

#include <gable/dtype.h>

#include <array>
#include <cstdint>

namespace gable {

/// A max-pool fused into a convolution. A window of 1x1 with stride 1 is no pool. Windows lie wholly inside the
/// convolution's output (floor division).
struct FusedPool {
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
  DType dtype = DType::f32;  // of x, weights and y; bias is f32
  Math math = Math::strict;  // of f32 products
  bool nhwc = true;          // else nchw, for x and y
  bool bias = false;
  Activation activation = Activation::none;
  FusedPool pool{};

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

/// What the bytes of packed weights depend on besides the weights themselves: plans of equal packings share them,
/// whatever their batch, image, epilogue and threads.
struct Packing {
  const char* order = "";    // the memory order's name, one a kernel (a literal)
  DType dtype = DType::f32;  // of the weights that are packed
  std::int64_t k = 1, group_c = 1, r = 1, s = 1, groups = 1;
  std::array<std::int64_t, 6> cut{};  // the order's own numbers: lanes of a panel, channels of a block, parts
};

/// Of a problem's weights in the order `order`.
constexpr Packing packing_of(const Conv2dProblem& p, const char* order, const std::array<std::int64_t, 6>& cut) {
  return {order, p.dtype, p.k, p.group_c(), p.r, p.s, p.groups, cut};
}

/// c[m,n] = activation(a[m,k] * b[k,n] + bias[n]), row-major.
struct MatmulProblem {
  std::int64_t m = 1, n = 1, k = 1;
  DType dtype = DType::f32;  // of a, b and c
  bool bias = false;
  Activation activation = Activation::none;
  Math math = Math::strict;
};

/// A matrix product is a 1x1 convolution over one row of m pixels in NHWC, so every convolution kernel is a matrix
/// product's kernel too. Its weights lie in b's order.
constexpr Conv2dProblem as_conv2d(const MatmulProblem& m) {
  return {.c = m.k,
          .w = m.m,
          .k = m.n,
          .wo = m.m,
          .dtype = m.dtype,
          .math = m.math,
          .bias = m.bias,
          .activation = m.activation};
}

/// Of b.
constexpr WeightStrides dense_strides(const MatmulProblem& m) { return {1, m.n, 0, 0}; }

/// Maximum over each window. Padding never wins; bottom and right padding follow from the output's extents.
struct MaxPoolProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;  // input
  std::int64_t window_h = 1, window_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;
  std::int64_t out_h = 1, out_w = 1;
  DType dtype = DType::f32;
  bool nhwc = true;
};

constexpr const char* name_of(DType dtype) {
  return dtype == DType::f32 ? "f32" : dtype == DType::f16 ? "f16" : "bf16";
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace gable
