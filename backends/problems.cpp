// See problems.h.
#include "backends/problems.h"

#include "common/swapped_axes.h"

namespace gable {

Conv2dProblem problem_of(const Conv2d& conv) {
  const Shape image = conv_output_shape(conv);
  Conv2dProblem p{.n = conv.input[0],
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
                  .dtype = conv.dtype,
                  .math = conv.math,
                  .nhwc = conv.layout == Layout::nhwc,
                  .bias = conv.epilogue.bias,
                  .activation = conv.epilogue.activation};
  if (const PoolWindow& pool = conv.epilogue.max_pool) {
    p.pool = {.h = pool.window.h, .w = pool.window.w, .stride_h = pool.stride.h, .stride_w = pool.stride.w};
  }
  return p;
}

MatmulProblem problem_of(const Matmul& matmul) {
  return {.m = matmul.m,
          .n = matmul.n,
          .k = matmul.k,
          .dtype = matmul.dtype,
          .bias = matmul.bias,
          .activation = matmul.activation,
          .math = matmul.math};
}

MaxPoolProblem problem_of(const MaxPool& pool) {
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
          .dtype = pool.dtype,
          .nhwc = pool.layout == Layout::nhwc};
}

namespace {

/// Whether NCHW and NHWC are the same order for both x and y: each has one pixel or one channel.
bool layouts_agree(const Conv2dProblem& p) {
  return (p.h * p.w == 1 || p.c == 1) && (p.out_h() * p.out_w() == 1 || p.k == 1);
}

/// Whether images, windows and outputs are one column wide.
bool is_column(const Conv2dProblem& p) {
  return p.h > 1 && p.w == 1 && p.s == 1 && p.wo == 1 && p.pad_left == 0 && p.pool.w == 1;
}

}  // namespace

Conv2dProblem upright_problem(const Op& op) {
  const auto* const conv = std::get_if<Conv2d>(&op);
  if (conv == nullptr) return weighted_op(op).problem;
  Conv2dProblem problem = problem_of(*conv);
  if (layouts_agree(problem)) problem.nhwc = true;
  return problem;
}

WeightedOp weighted_op(const Op& op) {
  if (std::holds_alternative<Conv2d>(op)) {
    Conv2dProblem problem = upright_problem(op);
    // A column as a row: the same bytes, whose neighbouring outputs kernels compute together. So are its weights.
    if (is_column(problem)) problem = with_axes_swapped(problem);
    return {op, problem, dense_strides(problem)};
  }
  const MatmulProblem problem = problem_of(std::get<Matmul>(op));
  return {op, as_conv2d(problem), dense_strides(problem)};
}

ActivateProblem problem_of(const Activate& activate) {
  return {.count = activate.shape.elements(),
          .dtype = activate.dtype,
          .function = activate.function,
          .slope = activate.slope};
}

ConcatProblem problem_of(const Concat& c) {
  const std::int64_t pixels = c.a[2] * c.a[3];
  const auto bytes = static_cast<std::int64_t>(size_of(c.dtype));
  if (c.layout == Layout::nhwc) {
    return {.rows = c.a[0] * pixels, .a_bytes = c.a[1] * bytes, .b_bytes = c.b[1] * bytes};
  }
  return {.rows = c.a[0], .a_bytes = c.a[1] * pixels * bytes, .b_bytes = c.b[1] * pixels * bytes};
}

UpsampleProblem problem_of(const Upsample& u) {
  const bool nhwc = u.layout == Layout::nhwc;
  return {.rows = u.input[0] * u.input[2] * (nhwc ? 1 : u.input[1]),
          .pixels = u.input[3],
          .channels = nhwc ? u.input[1] : 1,
          .scale_h = u.scale.h,
          .scale_w = u.scale.w,
          .element_bytes = static_cast<int>(size_of(u.dtype))};
}

BilinearProblem bilinear_problem_of(const Upsample& u) {
  const bool nhwc = u.layout == Layout::nhwc;
  return {.images = u.input[0] * (nhwc ? 1 : u.input[1]),
          .rows = u.input[2],
          .pixels = u.input[3],
          .channels = nhwc ? u.input[1] : 1,
          .scale_h = u.scale.h,
          .scale_w = u.scale.w,
          .align_corners = u.interpolation == Interpolation::bilinear_align_corners,
          .dtype = u.dtype};
}

MultiplyProblem problem_of(const Multiply& m) {
  if (m.a == m.b) return {.run = m.a.elements(), .dtype = m.dtype};
  const std::int64_t pixels = m.a[2] * m.a[3];
  if (m.layout == Layout::nhwc) return {.images = m.a[0], .repeats = pixels, .run = m.a[1], .dtype = m.dtype};
  return {.images = m.a[0] * m.a[1], .repeats = pixels, .dtype = m.dtype};
}

SoftmaxProblem problem_of(const Softmax& s) {
  const auto rank = static_cast<int>(s.shape.rank());
  const int axis = s.axis < 0 ? s.axis + rank : s.axis;
  // Dimensions as they lie in memory.
  constexpr int kNhwc[] = {0, 2, 3, 1};
  SoftmaxProblem problem{.dtype = s.dtype};
  std::int64_t* extent = &problem.rows;
  for (int i = 0; i < rank; ++i) {
    const int dimension = rank == 4 && s.layout == Layout::nhwc ? kNhwc[i] : i;
    const std::int64_t size = s.shape[static_cast<std::size_t>(dimension)];
    if (dimension == axis) {
      problem.count = size;
      extent = &problem.columns;
    } else {
      *extent *= size;
    }
  }
  return problem;
}

ErrorBound unweighted_bound(const Op& op) {
  const auto* const activate = std::get_if<Activate>(&op);
  // Beside a term of x's magnitude, the results of these have one of their own: they are not near 0 where x is.
  const bool is_bounded =
      activate != nullptr && (activate->function == Function::tanh || activate->function == Function::sigmoid ||
                              activate->function == Function::hard_sigmoid);
  if (const auto* const softmax = std::get_if<Softmax>(&op)) {
    return f32_accumulation_bound(problem_of(*softmax).count, softmax->dtype, Activation::none);
  }
  const auto* const upsample = std::get_if<Upsample>(&op);
  const bool is_mean = upsample != nullptr && upsample->interpolation != Interpolation::nearest;
  return f32_accumulation_bound(is_mean ? 4 : 1, dtype_of(op), is_bounded ? Activation::tanh : Activation::none);
}

bool has_weights(const Op& op) { return std::holds_alternative<Conv2d>(op) || std::holds_alternative<Matmul>(op); }

ErrorBound f32_bound(const WeightedOp& op) {
  return f32_accumulation_bound(terms(op.op), op.problem.dtype, op.problem.activation);
}

}  // namespace gable
