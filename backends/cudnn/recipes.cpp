// See recipes.h.
#include "backends/cudnn/recipes.h"

#include <algorithm>

namespace gable::cudnn {
namespace {

constexpr std::int64_t kVirtualIds = 100;

using Dims = std::array<std::int64_t, 4>;

/// A convolution, or a matrix product as one of 1x1 over m pixels in NHWC.
struct Problem {
  Dims x, weights, between, y;  ///< `between` is the convolution's output, before the pool
  Layout layout;
  DType dtype;
  Math math;
  ConvolutionAttributes attributes;
  Epilogue epilogue;
};

Dims dims_of(const Shape& shape) { return {shape[0], shape[1], shape[2], shape[3]}; }

std::int64_t elements(const Dims& d) { return d[0] * d[1] * d[2] * d[3]; }

Dims strides_of(const Dims& d, Layout layout) {
  if (layout == Layout::nhwc) return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
  return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
}

Strided strided(const Dims& dims, Layout layout, DType dtype) { return {dims, strides_of(dims, layout), dtype}; }

GraphTensor graph_tensor(std::int64_t id, const Dims& dims, Layout layout, cudnnDataType_t type) {
  const Dims strides = strides_of(dims, layout);
  return {id, {dims.begin(), dims.end()}, {strides.begin(), strides.end()}, type, false};
}

/// Right and bottom padding that no output reads is made equal to left and top: most engines pad both sides alike.
std::int64_t padding_after(std::int64_t size, std::int64_t reach, std::int64_t stride, std::int64_t before,
                           std::int64_t after) {
  const auto outputs = [&](std::int64_t end) { return (size + before + end - reach) / stride; };
  return outputs(before) == outputs(after) ? before : after;
}

Problem problem_of(const Conv2d& c) {
  const Shape& w = c.weights;
  const std::int64_t reach_h = c.dilation.h * (w[2] - 1) + 1, reach_w = c.dilation.w * (w[3] - 1) + 1;
  const Padding& p = c.padding;
  return {.x = dims_of(c.input),
          .weights = dims_of(w),
          .between = dims_of(conv_output_shape(c)),
          .y = dims_of(output_shape(c)),
          .layout = c.layout,
          .dtype = c.dtype,
          .math = c.math,
          .attributes = {{c.stride.h, c.stride.w},
                         {c.dilation.h, c.dilation.w},
                         {p.top, p.left},
                         {padding_after(c.input[2], reach_h, c.stride.h, p.top, p.bottom),
                          padding_after(c.input[3], reach_w, c.stride.w, p.left, p.right)}},
          .epilogue = c.epilogue};
}

Problem problem_of(const Matmul& m) {
  return {.x = {1, m.k, m.m, 1},
          .weights = {m.n, m.k, 1, 1},
          .between = {1, m.n, m.m, 1},
          .y = {1, m.n, m.m, 1},
          .layout = Layout::nhwc,
          .dtype = m.dtype,
          .math = m.math,
          .attributes = {{1, 1}, {1, 1}, {0, 0}, {0, 0}},
          .epilogue = {.bias = m.bias, .activation = m.activation}};
}

cudnnPointwiseMode_t mode_of(Activation activation) {
  return activation == Activation::relu ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_TANH_FWD;
}

bool has_pool(const Problem& p) { return static_cast<bool>(p.epilogue.max_pool); }
bool has_pointwise(const Problem& p) { return p.epilogue.bias || p.epilogue.activation != Activation::none; }

/// Tensors and operations of one graph as they are added.
class GraphBuilder {
 public:
  GraphBuilder(Session& session, const Problem& problem, bool compiles)
      : p_(problem), graph_(session.library, session.handle), compiles_(compiles) {}

  GraphTensor real(Slot slot, const Dims& dims) {
    slots_.push_back(slot);
    return graph_tensor(slot, dims, p_.layout, data_type(p_.dtype));
  }
  /// A tensor that is already in memory under another slot.
  GraphTensor again(Slot slot, GraphTensor tensor) {
    slots_.push_back(slot);
    tensor.id = slot;
    return tensor;
  }
  /// A virtual f32 tensor, which exists only inside the engine.
  GraphTensor inner(const Dims& dims) {
    GraphTensor made = graph_tensor(kVirtualIds + inner_++, dims, p_.layout, CUDNN_DATA_FLOAT);
    made.is_virtual = true;
    return made;
  }

  void convolution(const GraphTensor& y) {
    graph_.convolution(real(kX, p_.x), real(kWeights, p_.weights), y, p_.attributes);
  }
  /// Bias and activation from `x` to `y`. The bias is f32, or lies at `bias_slot` in the op's dtype.
  void epilogue(GraphTensor x, const GraphTensor& y, const Dims& dims, Slot bias_slot = kBias) {
    const bool activates = p_.epilogue.activation != Activation::none;
    if (p_.epilogue.bias) {
      slots_.push_back(bias_slot);
      const GraphTensor bias = graph_tensor(bias_slot, {1, dims[1], 1, 1}, p_.layout,
                                            bias_slot == kBias ? CUDNN_DATA_FLOAT : data_type(p_.dtype));
      const GraphTensor sum = activates ? inner(dims) : y;
      graph_.pointwise(CUDNN_POINTWISE_ADD, x, &bias, sum);
      x = sum;
    }
    if (activates) graph_.pointwise(mode_of(p_.epilogue.activation), x, nullptr, y);
  }
  /// A tensor times zero, which cuDNN's own fused convolutions expect between product and bias. `y` stands in for it.
  void add_nothing(const GraphTensor& x, const GraphTensor& z, const GraphTensor& y) {
    graph_.pointwise(CUDNN_POINTWISE_ADD, x, &z, y, 0.0f);
  }

  /// A graph that has no product is not bound by the math of products: engines on tensor cores may run it.
  std::unique_ptr<GraphStep> finish(const std::string& what, bool has_product = true) {
    // cuDNN 9.19's run-time compiled engines gave wrong results for NCHW outputs of one pixel on an H100.
    const bool one_pixel = p_.layout == Layout::nchw && p_.between[2] * p_.between[3] == 1;
    const EngineRules rules{.tensor_cores = !has_product || p_.dtype != DType::f32 || p_.math == Math::tf32,
                            .compiled_at_run_time = compiles_ && !one_pixel};
    return std::make_unique<GraphStep>(std::move(graph_), rules, std::move(slots_), what);
  }

 private:
  const Problem& p_;
  Graph graph_;
  bool compiles_;
  std::vector<std::int64_t> slots_;
  std::int64_t inner_ = 0;
};

std::unique_ptr<Step> pool_of(Session& session, const Problem& p) {
  const PoolWindow& pool = p.epilogue.max_pool;
  return make_max_pool(session.library, strided(p.between, p.layout, p.dtype), kBetween,
                       strided(p.y, p.layout, p.dtype),
                       {{pool.window.h, pool.window.w}, {pool.stride.h, pool.stride.w}, {0, 0}});
}

Recipe with_product(std::unique_ptr<GraphStep> product, const Problem& p) {
  Recipe recipe{.kernel = "convolution"};
  recipe.product = product.get();
  recipe.steps.push_back(std::move(product));
  if (has_pool(p)) {
    recipe.fused = false;
    recipe.between_bytes = static_cast<std::size_t>(elements(p.between)) * size_of(p.dtype);
  }
  return recipe;
}

/// Convolution, bias and activation in one graph; then the pool. With an addend it is the pattern of cuDNN's
/// precompiled fused convolutions, which want the bias in the op's dtype.
Recipe fused(Session& session, const Problem& p, bool compiles, bool with_addend) {
  const bool rounds_bias = with_addend && p.dtype != DType::f32;
  GraphBuilder builder(session, p, compiles);
  const GraphTensor y = builder.real(has_pool(p) ? kBetween : kY, p.between);
  if (!has_pointwise(p)) {
    builder.convolution(y);
  } else {
    GraphTensor sum = builder.inner(p.between);
    builder.convolution(sum);
    if (with_addend) {
      const GraphTensor more = builder.inner(p.between);
      builder.add_nothing(sum, builder.again(has_pool(p) ? kBetweenAgain : kYAgain, y), more);
      sum = more;
    }
    builder.epilogue(sum, y, p.between, rounds_bias ? kRoundedBias : kBias);
  }
  Recipe recipe = with_product(builder.finish("convolution with bias and activation in one graph"), p);
  if (rounds_bias) {
    recipe.rounds_bias = true;
    recipe.bias_bytes = static_cast<std::size_t>(p.weights[0]) * size_of(p.dtype);
    recipe.steps.insert(recipe.steps.begin(), make_bias_rounding(p.weights[0], p.dtype));
  }
  if (has_pool(p)) recipe.steps.push_back(pool_of(session, p));
  return recipe;
}

/// Separate steps: convolution, pool, then bias and activation in place. These commute with the pool and have fewer
/// elements after it.
Recipe split(Session& session, const Problem& p, bool compiles) {
  GraphBuilder convolution(session, p, compiles);
  convolution.convolution(convolution.real(has_pool(p) ? kBetween : kY, p.between));
  Recipe recipe = with_product(convolution.finish("convolution"), p);
  if (has_pool(p)) recipe.steps.push_back(pool_of(session, p));
  GraphBuilder rest(session, p, compiles);
  const GraphTensor x = rest.real(kYAgain, p.y);
  rest.epilogue(x, rest.real(kY, p.y), p.y);
  recipe.steps.push_back(rest.finish("bias and activation", false));
  recipe.fused = false;
  recipe.rounds_between = p.dtype != DType::f32;
  return recipe;
}

bool splits_products(const Conv2d& op) { return op.math == Math::split3 || op.math == Math::split6; }
bool splits_products(const Matmul& op) { return op.math == Math::split3 || op.math == Math::split6; }
template <typename OtherOp>
bool splits_products(const OtherOp&) {
  return false;
}

template <typename WeightedOp>
std::vector<RecipeMaker> weighted_recipes(const WeightedOp& op) {
  const Problem p = problem_of(op);
  if (const std::string why = refusal_without_asking(op); !why.empty()) {
    return {[why](Session&, bool) -> Recipe { throw Error(ErrorCode::unsupported, why); }};
  }
  std::vector<RecipeMaker> all{[p](Session& session, bool compiles) { return fused(session, p, compiles, false); }};
  if (!has_pointwise(p)) return all;
  if (p.epilogue.bias)
    all.push_back([p](Session& session, bool compiles) { return fused(session, p, compiles, true); });
  all.push_back([p](Session& session, bool compiles) { return split(session, p, compiles); });
  return all;
}

Recipe one_step(const std::string& kernel, std::unique_ptr<Step> step) {
  Recipe recipe{.kernel = kernel};
  recipe.steps.push_back(std::move(step));
  return recipe;
}

std::vector<RecipeMaker> recipes(const Conv2d& op) { return weighted_recipes(op); }
std::vector<RecipeMaker> recipes(const Matmul& op) { return weighted_recipes(op); }

std::vector<RecipeMaker> recipes(const MaxPool& op) {
  return {[op](Session& session, bool) {
    return one_step(
        "pooling",
        make_max_pool(session.library, strided(dims_of(op.input), op.layout, op.dtype), kX,
                      strided(dims_of(output_shape(op)), op.layout, op.dtype),
                      {{op.window.h, op.window.w}, {op.stride.h, op.stride.w}, {op.padding.top, op.padding.left}}));
  }};
}

std::vector<RecipeMaker> recipes(const Add& op) {
  return {[op](Session& session, bool compiles) {
    const Dims dims{1, 1, 1, op.shape.elements()};
    const auto tensor = [&](Slot slot) { return graph_tensor(slot, dims, Layout::nchw, data_type(op.dtype)); };
    Graph graph(session.library, session.handle);
    const GraphTensor second = tensor(kSecond);
    const bool activates = op.activation != Activation::none;
    GraphTensor sum = tensor(kY);
    if (activates) {
      sum = graph_tensor(kVirtualIds, dims, Layout::nchw, CUDNN_DATA_FLOAT);
      sum.is_virtual = true;
    }
    graph.pointwise(CUDNN_POINTWISE_ADD, tensor(kX), &second, sum);
    if (activates) graph.pointwise(mode_of(op.activation), sum, nullptr, tensor(kY));
    return one_step("pointwise",
                    std::make_unique<GraphStep>(std::move(graph), EngineRules{.compiled_at_run_time = compiles},
                                                std::vector<std::int64_t>{kX, kSecond, kY}, "addition"));
  }};
}

std::vector<RecipeMaker> recipes(const Transpose& op) {
  return {[op](Session& session, bool) {
    const Dims dims{1, 1, op.rows, op.columns};
    const std::int64_t all = op.rows * op.columns;
    return one_step("transform", make_transform(session.library, {dims, {all, all, op.columns, 1}, op.dtype},
                                                {dims, {all, all, 1, op.rows}, op.dtype}));
  }};
}

std::vector<RecipeMaker> recipes(const Reorder& op) {
  return {[op](Session& session, bool) {
    const Dims dims = dims_of(op.shape);
    return one_step("transform",
                    make_transform(session.library, strided(dims, op.from, op.dtype), strided(dims, op.to, op.dtype)));
  }};
}

/// The others, which refusal_without_asking() refuses.
template <typename OtherOp>
std::vector<RecipeMaker> recipes(const OtherOp&) {
  return {};
}

bool has_recipes(const Op& op) {
  return !std::holds_alternative<Activate>(op) && !std::holds_alternative<Concat>(op) &&
         !std::holds_alternative<Upsample>(op) && !std::holds_alternative<Multiply>(op) &&
         !std::holds_alternative<Softmax>(op);
}

double roundoff(DType dtype) { return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-24; }

Activation activation_of(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->epilogue.activation;
  if (const auto* matmul = std::get_if<Matmul>(&op)) return matmul->activation;
  if (const auto* add = std::get_if<Add>(&op)) return add->activation;
  return Activation::none;
}

bool is_tf32(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->math == Math::tf32;
  const auto* matmul = std::get_if<Matmul>(&op);
  return matmul != nullptr && matmul->math == Math::tf32;
}

}  // namespace

std::size_t Recipe::workspace_bytes() const {
  std::size_t most = 0;
  for (const auto& step : steps) most = std::max(most, step->workspace_bytes());
  return most;
}

std::vector<RecipeMaker> recipes_for(const Op& op) {
  return std::visit([](const auto& one) { return recipes(one); }, op);
}

std::string refusal_without_asking(const Op& op) {
  if (!has_recipes(op)) return "gable has no " + std::string(name(op)) + " by cuDNN; cuda has one";
  const bool splits = std::visit([](const auto& one) { return splits_products(one); }, op);
  return splits ? "cuDNN has no split f32 products; it has strict and tf32" : "";
}

std::string kernel_of(const Op& op) {
  if (std::holds_alternative<MaxPool>(op)) return "pooling";
  if (std::holds_alternative<Add>(op)) return "pointwise";
  const bool has_weights = std::holds_alternative<Conv2d>(op) || std::holds_alternative<Matmul>(op);
  return has_weights ? "convolution" : "transform";
}

/// With M = sum |x||w| + |bias| over n terms, beyond f32 accumulation:
///   tensor cores cut each eight or sixteen addends to about 24 bits: up to 2^-23 of the sum for each eight terms;
///   tf32 inputs are cut, not rounded, to 10 bits of mantissa: 2^-10 each;
///   a tensor between two steps, or the bias, is rounded to the op's dtype;
///   the tanh that cuDNN generates was found to err by up to 8e-6.
ErrorBound bound_of(const Op& op, const Recipe& recipe) {
  ErrorBound bound = f32_accumulation_bound(terms(op), dtype_of(op), activation_of(op));
  if (recipe.product != nullptr && recipe.product->uses_tensor_cores()) {
    bound.accumulation += static_cast<double>(terms(op) + 7) / 8 * 0x1p-23;
    if (is_tf32(op)) bound.accumulation += 2 * 0x1p-10 * (1 + 0x1p-10);
  }
  if (activation_of(op) == Activation::tanh) bound.absolute += 0x1p-16;
  if (recipe.rounds_between || recipe.rounds_bias) bound.accumulation += roundoff(dtype_of(op)) * 1.01;
  return bound;
}

}  // namespace gable::cudnn
