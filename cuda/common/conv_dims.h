// The numbers of a convolution as 32-bit integers, for kernels whose index arithmetic fits them: 64-bit multiplications
// cost a GPU several instructions.
#pragma once

#include <gable/problem.h>

namespace gable::cuda {

struct ConvDims {
  int n, c, h, w, k, r, s, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w, group_c, group_k, out_h,
      out_w;
};

inline ConvDims conv_dims(const Conv2dProblem& p) {
  const auto i = [](std::int64_t value) { return static_cast<int>(value); };
  return {.n = i(p.n),
          .c = i(p.c),
          .h = i(p.h),
          .w = i(p.w),
          .k = i(p.k),
          .r = i(p.r),
          .s = i(p.s),
          .stride_h = i(p.stride_h),
          .stride_w = i(p.stride_w),
          .pad_top = i(p.pad_top),
          .pad_left = i(p.pad_left),
          .dilation_h = i(p.dilation_h),
          .dilation_w = i(p.dilation_w),
          .group_c = i(p.group_c()),
          .group_k = i(p.group_k()),
          .out_h = i(p.out_h()),
          .out_w = i(p.out_w())};
}

}  // namespace gable::cuda
