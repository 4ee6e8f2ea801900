// The description of a convolution as the CPU kernels take it, and its checks.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/common/target.h"
#include "cpu/common/types.h"

namespace gable::cpu {

/// A window of 1×1 with stride 1 is no pool. Windows lie wholly inside the convolution's output (floor division).
struct PoolWindow {
  std::int64_t h = 1, w = 1, stride_h = 1, stride_w = 1;

  bool none() const { return h == 1 && w == 1 && stride_h == 1 && stride_w == 1; }
  bool is_2x2() const { return h == 2 && w == 2 && stride_h == 2 && stride_w == 2; }
};

struct Conv2dProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;  // input
  std::int64_t k = 1, r = 1, s = 1;         // output channels, kernel
  std::int64_t ho = 1, wo = 1;              // the convolution's output; right and bottom padding follow from it
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  Type type = Type::f32;  // of x, weights and y; bias is f32
  bool nhwc = true;       // else nchw, for x and y
  bool bias = false;
  Activation activation = Activation::none;
  PoolWindow pool{};

  std::int64_t out_h() const { return (ho - pool.h) / pool.stride_h + 1; }
  std::int64_t out_w() const { return (wo - pool.w) / pool.stride_w + 1; }
};

/// Where weight (o, i, kh, kw) lies, in elements: o*out + i*in + kh*row + kw*column. i counts within a group.
struct WeightStrides {
  std::int64_t out, in, row, column;
};

/// Of dense weights in OIHW order.
inline WeightStrides dense_strides(const Conv2dProblem& p) {
  const std::int64_t taps = p.r * p.s;
  return {p.c / p.groups * taps, taps, p.s, 1};
}

/// Throws std::invalid_argument that names the first offending value.
void check(const Conv2dProblem& problem);

/// The problem, for a plan of a kernel that takes only some: throws std::invalid_argument that names what check(), the
/// kernel's refusal or the number of threads has against it.
const Conv2dProblem& checked(const std::string& kernel, const Conv2dProblem& problem,
                             std::string (*refusal)(const Conv2dProblem&, const Target&), const Target& target,
                             int threads);

}  // namespace gable::cpu
