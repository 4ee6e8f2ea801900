// Parts that the parameters of several kernels have in common.
#pragma once

#include <gable/problem.h>

namespace gable::cuda {

/// The tensors of a run. Weights are packed in the kernel's own order.
struct Tensors {
  const void* x;
  const void* packed;
  const float* bias;  // null: none
  void* y;
};

/// A convolution's window. Padding after the last row and column follows from the outputs.
struct Window {
  int kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
};

inline Window window_of(const Conv2dProblem& p) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  return {.kernel_h = narrow(p.r),
          .kernel_w = narrow(p.s),
          .stride_h = narrow(p.stride_h),
          .stride_w = narrow(p.stride_w),
          .pad_top = narrow(p.pad_top),
          .pad_left = narrow(p.pad_left),
          .dilation_h = narrow(p.dilation_h),
          .dilation_w = narrow(p.dilation_w)};
}

}  // namespace gable::cuda
