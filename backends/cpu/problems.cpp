// See problems.h.
#include "backends/cpu/problems.h"

namespace gable {
namespace {

cpu::Activation activation_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return cpu::Activation::relu;
    case Activation::tanh:
      return cpu::Activation::tanh;
    case Activation::none:
      break;
  }
  return cpu::Activation::none;
}

}  // namespace

cpu::Type type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return cpu::Type::f16;
    case DType::bf16:
      return cpu::Type::bf16;
    case DType::f32:
      break;
  }
  return cpu::Type::f32;
}

cpu::Conv2dProblem problem_of(const Conv2d& conv) {
  const Shape image = conv_output_shape(conv);
  cpu::Conv2dProblem p{.n = conv.input[0],
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
                       .type = type_of(conv.dtype),
                       .nhwc = conv.layout == Layout::nhwc,
                       .bias = conv.epilogue.bias,
                       .activation = activation_of(conv.epilogue.activation)};
  if (const PoolWindow& pool = conv.epilogue.max_pool) {
    p.pool = {.h = pool.window.h, .w = pool.window.w, .stride_h = pool.stride.h, .stride_w = pool.stride.w};
  }
  return p;
}

cpu::MatmulProblem problem_of(const Matmul& matmul) {
  return {.m = matmul.m,
          .n = matmul.n,
          .k = matmul.k,
          .type = type_of(matmul.dtype),
          .bias = matmul.bias,
          .activation = activation_of(matmul.activation)};
}

cpu::MaxPoolProblem problem_of(const MaxPool& pool) {
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
          .type = type_of(pool.dtype),
          .nhwc = pool.layout == Layout::nhwc};
}

}  // namespace gable
