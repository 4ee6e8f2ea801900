// Ops as kernels take them: plain numbers in which every extent is known, for CPU and GPU kernels alike. Extents and
// counts are in elements. A backend makes them from valid ops (gable/ops.h); kernels pass them by value, also into
// device code. Nothing here is checked.
#pragma once

#include <gable/dtype.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace gable {

/// A max-pool fused into a convolution. A window of 1x1 with stride 1 is no pool. Only windows that lie wholly inside
/// the convolution's output count (floor division).
struct FusedPool {
  std::int64_t h = 1, w = 1, stride_h = 1, stride_w = 1;

  constexpr bool none() const { return h == 1 && w == 1 && stride_h == 1 && stride_w == 1; }    ///< no pool
  constexpr bool is_2x2() const { return h == 2 && w == 2 && stride_h == 2 && stride_w == 2; }  ///< as networks have it
};

/// y = pool(activation(conv(x, w) + bias)), as Conv2d in gable/ops.h defines it.
struct Conv2dProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;  // input
  std::int64_t k = 1, r = 1, s = 1;         // output channels, kernel
  std::int64_t ho = 1, wo = 1;              // the convolution's output, before the pool
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;  // bottom and right padding follow from ho and wo
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  DType dtype = DType::f32;  // of x, weights and y; bias is f32
  Math math = Math::strict;  // of f32 products
  bool nhwc = true;          // the layout of x and y; else nchw
  bool bias = false;
  Activation activation = Activation::none;
  FusedPool pool{};

  // Of y, after the pool.
  constexpr std::int64_t out_h() const { return (ho - pool.h) / pool.stride_h + 1; }  ///< rows of y
  constexpr std::int64_t out_w() const { return (wo - pool.w) / pool.stride_w + 1; }  ///< columns of y
  constexpr std::int64_t group_c() const { return c / groups; }                       ///< input channels of a group
  constexpr std::int64_t group_k() const { return k / groups; }                       ///< output channels of a group
  constexpr std::int64_t x_elements() const { return n * c * h * w; }                 ///< of all images
  constexpr std::int64_t conv_elements() const { return n * k * ho * wo; }            ///< before the pool
  constexpr std::int64_t y_elements() const { return n * k * out_h() * out_w(); }     ///< after the pool
};

/// Where the weight of output channel o, input channel i of its group and tap (kh, kw) lies, in elements from the
/// first: o * out + i * in + kh * row + kw * column.
struct WeightStrides {
  std::int64_t out, in, row, column;
};

/// The strides of a convolution's weights as pack() gets them: dense, in the order (K, C/groups, R, S).
constexpr WeightStrides dense_strides(const Conv2dProblem& p) {
  const std::int64_t taps = p.r * p.s;
  return {p.group_c() * taps, taps, p.s, 1};
}

/// Everything that the bytes of packed weights depend on, besides the values of the weights. Plans with equal packings
/// on one device share packed weights, whatever their batch size, image size, epilogue and threads: packing_key() in
/// gable/backend.h makes the key. A kernel whose bytes also depend on its target or its blocking says so in `cut`.
struct Packing {
  const char* order = "";    // name of the memory order, a literal; no two kernels use one name for two orders
  DType dtype = DType::f32;  // of the weights before packing
  std::int64_t k = 1, group_c = 1, r = 1, s = 1, groups = 1;
  std::array<std::int64_t, 6>
      cut{};  // numbers of this order: lanes of a panel, channels of a block, bf16 parts; rest 0

  /// Orders are compared by name, not by address.
  friend constexpr bool operator==(const Packing& a, const Packing& b) {
    return std::string_view(a.order) == b.order && a.dtype == b.dtype && a.k == b.k && a.group_c == b.group_c &&
           a.r == b.r && a.s == b.s && a.groups == b.groups && a.cut == b.cut;
  }
};

/// The packing of the problem's weights in the order named `order` with the numbers `cut`.
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

/// A matrix product is a 1x1 convolution over one row of m pixels in NHWC, so every convolution kernel computes matrix
/// products too. The weights are b, in the order of dense_strides(MatmulProblem).
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

/// The strides of b, as pack() gets it: row-major (k, n).
constexpr WeightStrides dense_strides(const MatmulProblem& m) { return {1, m.n, 0, 0}; }

/// Maximum over each window. Padding counts as minus infinity. Bottom and right padding follow from the output's
/// extents.
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
