// What the plain problem structs of cpu/ and cuda/ have in common, filled from gable's ops. The rooms of kernels know
// neither gable's ops nor each other; their structs share field names, and their enums the names of gable's.
#pragma once

#include <gable/ops.h>

namespace gable {

template <typename KernelActivation>
KernelActivation activation_as(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return KernelActivation::relu;
    case Activation::tanh:
      return KernelActivation::tanh;
    case Activation::none:
      break;
  }
  return KernelActivation::none;
}

template <typename KernelType>
KernelType type_as(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return KernelType::f16;
    case DType::bf16:
      return KernelType::bf16;
    case DType::f32:
      break;
  }
  return KernelType::f32;
}

template <typename Problem>
Problem conv2d_as(const Conv2d& conv) {
  const Shape image = conv_output_shape(conv);
  Problem p{.n = conv.input[0],
            .c = conv.input[1],
            .h = conv.input[2],
            .w = conv.input[3],
            .k = conv.weights[0],
            .r = conv.weights[2],
            .s = conv.weights[3],
            .ho = image[2],
            .wo = image[3],
            .stride_h = conv.stride.h,
            .stride_w = conv.stride.w,
            .pad_top = conv.padding.top,
            .pad_left = conv.padding.left,
            .dilation_h = conv.dilation.h,
            .dilation_w = conv.dilation.w,
            .groups = conv.groups,
            .type = type_as<decltype(Problem::type)>(conv.dtype),
            .nhwc = conv.layout == Layout::nhwc,
            .bias = conv.epilogue.bias,
            .activation = activation_as<decltype(Problem::activation)>(conv.epilogue.activation)};
  if (const PoolWindow& pool = conv.epilogue.max_pool) {
    p.pool = {.h = pool.window.h, .w = pool.window.w, .stride_h = pool.stride.h, .stride_w = pool.stride.w};
  }
  return p;
}

template <typename Problem>
Problem max_pool_as(const MaxPool& pool) {
  const Shape output = output_shape(pool);
  return {.n = pool.input[0],
          .c = pool.input[1],
          .h = pool.input[2],
          .w = pool.input[3],
          .window_h = pool.window.h,
          .window_w = pool.window.w,
          .stride_h = pool.stride.h,
          .stride_w = pool.stride.w,
          .pad_top = pool.padding.top,
          .pad_left = pool.padding.left,
          .out_h = output[2],
          .out_w = output[3],
          .type = type_as<decltype(Problem::type)>(pool.dtype),
          .nhwc = pool.layout == Layout::nhwc};
}

}  // namespace gable
