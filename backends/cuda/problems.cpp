// See problems.h.
#include "backends/cuda/problems.h"

namespace gable {
namespace {

cuda::Activation activation_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return cuda::Activation::relu;
    case Activation::tanh:
      return cuda::Activation::tanh;
    case Activation::none:
      break;
  }
  return cuda::Activation::none;
}

cuda::Math math_of(Math math) {
  switch (math) {
    case Math::tf32:
      return cuda::Math::tf32;
    case Math::split3:
      return cuda::Math::split3;
    case Math::split6:
      return cuda::Math::split6;
    case Math::strict:
      break;
  }
  return cuda::Math::strict;
}

}  // namespace

cuda::Type type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return cuda::Type::f16;
    case DType::bf16:
      return cuda::Type::bf16;
    case DType::f32:
      break;
  }
  return cuda::Type::f32;
}

cuda::Conv2dProblem problem_of(const Conv2d& conv) {
  const Shape image = conv_output_shape(conv);
  cuda::Conv2dProblem p{.n = conv.input[0],
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
                        .math = math_of(conv.math),
                        .nhwc = conv.layout == Layout::nhwc,
                        .bias = conv.epilogue.bias,
                        .activation = activation_of(conv.epilogue.activation)};
  if (const PoolWindow& pool = conv.epilogue.max_pool) {
    p.pool = {.h = pool.window.h, .w = pool.window.w, .stride_h = pool.stride.h, .stride_w = pool.stride.w};
  }
  return p;
}

cuda::Conv2dProblem problem_of(const Matmul& matmul) {
  return {.c = matmul.k,
          .w = matmul.m,
          .k = matmul.n,
          .wo = matmul.m,
          .type = type_of(matmul.dtype),
          .math = math_of(matmul.math),
          .bias = matmul.bias,
          .activation = activation_of(matmul.activation)};
}

cuda::MaxPoolProblem problem_of(const MaxPool& pool) {
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

cuda::WeightStrides weight_strides(const Conv2d& conv) { return cuda::dense_strides(problem_of(conv)); }

cuda::WeightStrides weight_strides(const Matmul& matmul) { return {.out = 1, .in = matmul.n, .row = 0, .column = 0}; }

}  // namespace gable
