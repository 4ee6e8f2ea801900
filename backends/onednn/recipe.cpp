// From ops to oneDNN primitives.
//
// Weights are always in the format oneDNN likes best; pack() makes it. So are x and y of a convolution if that is the
// user's layout. If it isn't, the user's layout is kept where oneDNN has a kernel of its own for it (brgemm or jit),
// and otherwise x and y are reordered inside run(): faster than the im2col or the plain loops that would remain.
#include "recipe.h"

#include "formats.h"
#include "version.h"

#include <gable/error.h>

#include <algorithm>
#include <optional>

namespace gable::onednn {
namespace {

/// Winograd's transforms mix a whole tile of inputs into each output, so its error grows with the tile's magnitudes,
/// not with the output's own terms alone. On random data it errs up to 3 times as much as the direct kernel; 64 leaves
/// room for uneven data.
constexpr double kWinogradLoss = 64;

dnnl::primitive_attr plain_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::primitive_attr with_activation(Activation activation) {
  dnnl::primitive_attr attributes = plain_attributes();
  if (activation == Activation::none) return attributes;
  dnnl::post_ops operations;
  append_activation(operations,
                    activation == Activation::relu ? dnnl::algorithm::eltwise_relu : dnnl::algorithm::eltwise_tanh);
  attributes.set_post_ops(operations);
  return attributes;
}

void require_strict(Math math) {
  if (math == Math::strict) return;
  throw Error(ErrorCode::unsupported,
              "math " + std::string(to_string(math)) + ": oneDNN is used with its own arithmetic only, math strict");
}

std::string post_op_words(bool bias, Activation activation) {
  if (!bias && activation == Activation::none) return "";
  std::string words = bias ? "bias" : "";
  if (activation != Activation::none) words += (bias ? " and " : "") + std::string(to_string(activation));
  return "; " + words + " fused";
}

dnnl::reorder::primitive_desc describe_reorder(const dnnl::engine& engine, const dnnl::memory::desc& from,
                                               const dnnl::memory::desc& to) {
  return {engine, from, engine, to, plain_attributes()};
}

void add_reorder(const dnnl::engine& engine, Recipe& recipe, std::size_t from, std::size_t to) {
  recipe.stages.push_back({describe_reorder(engine, recipe.slots[from].description, recipe.slots[to].description),
                           {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}});
}

// --- convolution ---

dnnl::memory::dims weight_dims(const Conv2d& c) {
  if (c.groups == 1) return dims_of(c.weights);
  return {c.groups, c.weights[0] / c.groups, c.weights[1], c.weights[2], c.weights[3]};
}

using ConvolutionDesc = dnnl::convolution_forward::primitive_desc;
using PoolingDesc = dnnl::pooling_forward::primitive_desc;

/// A convolution and the pool behind it, in one choice of formats.
struct Candidate {
  ConvolutionDesc convolution;
  std::optional<PoolingDesc> pooling;
  bool reorders_input = false;
  bool reorders_output = false;

  dnnl::memory::desc result() const { return pooling ? pooling->dst_desc() : convolution.dst_desc(); }
  bool reorders() const { return reorders_input || reorders_output; }
  bool has_own_kernel() const {
    const std::string implementation = convolution.impl_info_str();
    return implementation.find("ref") == std::string::npos && implementation.find("gemm:") == std::string::npos;
  }
};

/// Whether some output column sees nothing but padding. oneDNN's brgemm convolutions then call a kernel that they did
/// not make and crash (its issue 5942; found here in 3.7, and in releases up to 3.14).
bool has_column_of_padding(const Conv2d& c) {
  const auto sees_input = [&](std::int64_t column) {
    for (std::int64_t tap = 0; tap < c.weights[3]; ++tap) {
      const std::int64_t x = column * c.stride.w - c.padding.left + tap * c.dilation.w;
      if (x >= 0 && x < c.input[3]) return true;
    }
    return false;
  };
  const auto any_blind = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; ++column) {
      if (!sees_input(column)) return true;
    }
    return false;
  };
  // The first tap of the columns between these two is inside the image.
  const std::int64_t columns = conv_output_shape(c)[3], step = c.stride.w;
  const std::int64_t inside = (c.padding.left + step - 1) / step;
  const std::int64_t behind = (c.padding.left + c.input[3] + step - 1) / step;
  return any_blind(0, std::min(inside, columns)) || any_blind(behind, columns);
}

/// Depthwise in 16 bits, at most 16 channels, a window of 15 columns or more: oneDNN 3.7.2 does not end making
/// its kernel (for images of 64 to 128 columns, with AMX and without; 14 columns or 17 channels are right).
bool has_endless_kernel(const Conv2d& c) {
  return c.groups > 1 && c.weights[1] == 1 && c.dtype != DType::f32 && c.groups <= 16 && c.weights[3] > 14;
}

/// bf16 in groups of 63, 95, 127... input channels with windows of more than 64 taps: oneDNN 2.6.3 without AMX reads
/// what it may not, and the process ends (9x9, 11x11 and 13x13 with 63 outputs; 62, 64 and 71 channels, 9x7 and f32 are
/// right, and so is oneDNN 3.7.2).
bool has_crashing_window(const Conv2d& c) {
  constexpr std::int64_t kBlock = 32, kTaps = 64;
  const bool one_less = c.weights[1] > kBlock && c.weights[1] % kBlock == kBlock - 1;
  return kMajorVersion < 3 && c.dtype == DType::bf16 && one_less && c.weights[2] * c.weights[3] > kTaps;
}

ConvolutionArguments convolution_arguments(const Conv2d& c, const std::string& kernel) {
  return {
      .algorithm = kernel == kWinograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct,
      .source = any_format(dims_of(c.input), c.dtype),
      .weights = any_format(weight_dims(c), c.dtype),
      .has_bias = c.epilogue.bias,
      .bias = row_major({c.weights[0]}, DType::f32),
      .destination = any_format(dims_of(conv_output_shape(c)), c.dtype),
      .strides = {c.stride.h, c.stride.w},
      .dilations = {c.dilation.h - 1, c.dilation.w - 1},
      .padding_before = {c.padding.top, c.padding.left},
      .padding_after = {c.padding.bottom, c.padding.right},
      .avoid_brgemm = !brgemm_fault(c).empty(),
      .avoid_brdgmm = has_endless_kernel(c)};
}

Candidate make_candidate(const dnnl::engine& engine, const Conv2d& c, const ConvolutionArguments& arguments) {
  Candidate candidate{.convolution = describe_convolution(engine, arguments, with_activation(c.epilogue.activation)),
                      .pooling = {}};
  const PoolWindow& pool = c.epilogue.max_pool;
  if (pool) {
    candidate.pooling = describe_max_pooling(engine,
                                             {.source = candidate.convolution.dst_desc(),
                                              .destination = any_format(dims_of(output_shape(c)), c.dtype),
                                              .strides = {pool.stride.h, pool.stride.w},
                                              .window = {pool.window.h, pool.window.w},
                                              .padding_before = {0, 0},
                                              .padding_after = {0, 0}},
                                             plain_attributes());
  }
  candidate.reorders_input = !same_memory(candidate.convolution.src_desc(), image(c.input, c.dtype, c.layout));
  candidate.reorders_output = !same_memory(candidate.result(), image(output_shape(c), c.dtype, c.layout));
  return candidate;
}

/// Nothing when oneDNN has no implementation in the user's layout.
std::optional<Candidate> in_users_layout(const dnnl::engine& engine, const Conv2d& c, ConvolutionArguments arguments) {
  arguments.source = image(c.input, c.dtype, c.layout);
  arguments.destination = image(conv_output_shape(c), c.dtype, c.layout);
  try {
    return make_candidate(engine, c, arguments);
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

Candidate choose(const dnnl::engine& engine, const Conv2d& c, const std::string& kernel) {
  const ConvolutionArguments arguments = convolution_arguments(c, kernel);
  Candidate preferred = make_candidate(engine, c, arguments);
  if (!preferred.reorders()) return preferred;
  std::optional<Candidate> kept = in_users_layout(engine, c, arguments);
  const bool keep = kept && (kept->has_own_kernel() || !preferred.has_own_kernel());
  return keep ? *kept : preferred;
}

std::string explain(const Conv2d& c, const Candidate& chosen) {
  const auto side = [&](const char* tensor, const dnnl::memory::desc& format, bool reordered) {
    return std::string(tensor) + " " + format_name(format) + (reordered ? " (reordered inside run: " : " (") +
           std::string(to_string(c.layout)) + " given)";
  };
  std::string text = std::string("implementation ") + chosen.convolution.impl_info_str() + "; formats " +
                     side("x", chosen.convolution.src_desc(), chosen.reorders_input) + ", weights " +
                     format_name(chosen.convolution.weights_desc()) + ", " +
                     side("y", chosen.result(), chosen.reorders_output) +
                     post_op_words(c.epilogue.bias, c.epilogue.activation);
  if (const std::string fault = brgemm_fault(c); !fault.empty()) text += "; no brgemm, which " + fault;
  if (chosen.pooling) {
    text += std::string("; max-pool not fused: a second primitive, ") + chosen.pooling->impl_info_str() +
            ", reads the convolution's output from a scratch tensor";
  }
  return text;
}

ErrorBound convolution_bound(const Conv2d& c, const std::string& kernel) {
  ErrorBound bound = f32_accumulation_bound(terms(c), c.dtype, c.epilogue.activation);
  if (kernel == kWinograd) bound.accumulation *= kWinogradLoss;
  return bound;
}

Recipe convolution_recipe(const dnnl::engine& engine, const Conv2d& c, const std::string& kernel) {
  require_strict(c.math);
  if (kernel == kWinograd && !why_no_winograd().empty()) throw Error(ErrorCode::unsupported, why_no_winograd());
  const Candidate chosen = choose(engine, c, kernel);
  const ConvolutionDesc& convolution = chosen.convolution;
  Recipe recipe;
  recipe.kernel = kernel;
  recipe.has_weights = true;
  recipe.given_weights = row_major(weight_dims(c), c.dtype);
  recipe.packed_weights = convolution.weights_desc();
  recipe.fused = !chosen.pooling;
  recipe.bound = convolution_bound(c, kernel);
  recipe.explanation = explain(c, chosen);

  std::size_t x =
      recipe.add_slot(Role::input, chosen.reorders_input ? image(c.input, c.dtype, c.layout) : convolution.src_desc());
  if (chosen.reorders_input) {
    const std::size_t reordered = recipe.add_slot(Role::scratch, convolution.src_desc());
    add_reorder(engine, recipe, x, reordered);
    x = reordered;
  }
  const std::size_t weights = recipe.add_slot(Role::weights, convolution.weights_desc());
  const bool last = !chosen.pooling && !chosen.reorders_output;
  std::size_t y = recipe.add_slot(last ? Role::output : Role::scratch, convolution.dst_desc());
  Stage stage{convolution, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, y}}};
  if (c.epilogue.bias) {
    stage.arguments.emplace_back(DNNL_ARG_BIAS, recipe.add_slot(Role::bias, convolution.bias_desc()));
  }
  recipe.stages.push_back(stage);
  if (chosen.pooling) {
    const Role role = chosen.reorders_output ? Role::scratch : Role::output;
    const std::size_t pooled = recipe.add_slot(role, chosen.pooling->dst_desc());
    recipe.stages.push_back({*chosen.pooling, {{DNNL_ARG_SRC, y}, {DNNL_ARG_DST, pooled}}});
    y = pooled;
  }
  if (chosen.reorders_output) {
    add_reorder(engine, recipe, y, recipe.add_slot(Role::output, image(output_shape(c), c.dtype, c.layout)));
  }
  return recipe;
}

// --- the ops of one primitive ---

Recipe matmul_recipe(const dnnl::engine& engine, const Matmul& m) {
  require_strict(m.math);
  const dnnl::memory::desc a = row_major({m.m, m.k}, m.dtype);
  const dnnl::memory::desc c = row_major({m.m, m.n}, m.dtype);
  const dnnl::memory::desc bias = row_major({1, m.n}, DType::f32);
  const dnnl::matmul::primitive_desc matmul = describe_matmul(
      engine,
      {.source = a, .weights = any_format({m.k, m.n}, m.dtype), .has_bias = m.bias, .bias = bias, .destination = c},
      with_activation(m.activation));
  Recipe recipe;
  recipe.kernel = kMatmul;
  recipe.has_weights = true;
  recipe.given_weights = row_major({m.k, m.n}, m.dtype);
  recipe.packed_weights = matmul.weights_desc();
  recipe.bound = f32_accumulation_bound(m.k, m.dtype, m.activation);
  recipe.explanation = std::string("implementation ") + matmul.impl_info_str() + "; formats a ab, b " +
                       format_name(matmul.weights_desc()) + ", c ab" + post_op_words(m.bias, m.activation);
  Stage stage{matmul,
              {{DNNL_ARG_SRC, recipe.add_slot(Role::input, a)},
               {DNNL_ARG_WEIGHTS, recipe.add_slot(Role::weights, matmul.weights_desc())},
               {DNNL_ARG_DST, recipe.add_slot(Role::output, c)}}};
  if (m.bias) stage.arguments.emplace_back(DNNL_ARG_BIAS, recipe.add_slot(Role::bias, bias));
  recipe.stages.push_back(stage);
  return recipe;
}

Recipe pooling_recipe(const dnnl::engine& engine, const MaxPool& p) {
  const dnnl::memory::desc x = image(p.input, p.dtype, p.layout);
  const dnnl::memory::desc y = image(output_shape(p), p.dtype, p.layout);
  const PoolingDesc pooling = describe_max_pooling(engine,
                                                   {.source = x,
                                                    .destination = y,
                                                    .strides = {p.stride.h, p.stride.w},
                                                    .window = {p.window.h, p.window.w},
                                                    .padding_before = {p.padding.top, p.padding.left},
                                                    .padding_after = {p.padding.bottom, p.padding.right}},
                                                   plain_attributes());
  Recipe recipe;
  recipe.kernel = kPooling;
  recipe.explanation = std::string("implementation ") + pooling.impl_info_str() + "; formats " + format_name(x);
  recipe.stages.push_back(
      {pooling, {{DNNL_ARG_SRC, recipe.add_slot(Role::input, x)}, {DNNL_ARG_DST, recipe.add_slot(Role::output, y)}}});
  return recipe;
}

Recipe add_recipe(const dnnl::engine& engine, const Add& a) {
  if (a.tile) {
    throw Error(ErrorCode::unsupported, "a tile shape is given, but oneDNN cuts tensors as it likes");
  }
  const dnnl::memory::desc operand = row_major({1, a.shape.elements()}, a.dtype);
  const dnnl::binary::primitive_desc binary = describe_add(engine, operand, with_activation(a.activation));
  Recipe recipe;
  recipe.kernel = kBinary;
  recipe.bound = f32_accumulation_bound(1, a.dtype, a.activation);
  recipe.explanation = std::string("implementation ") + binary.impl_info_str() + "; the tensors taken as flat" +
                       post_op_words(false, a.activation);
  recipe.stages.push_back({binary,
                           {{DNNL_ARG_SRC_0, recipe.add_slot(Role::input, operand)},
                            {DNNL_ARG_SRC_1, recipe.add_slot(Role::second_input, operand)},
                            {DNNL_ARG_DST, recipe.add_slot(Role::output, operand)}}});
  return recipe;
}

Recipe movement_recipe(const dnnl::engine& engine, const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  Recipe recipe;
  recipe.kernel = kReorder;
  const std::size_t x = recipe.add_slot(Role::input, from);
  const std::size_t y = recipe.add_slot(Role::output, to);
  add_reorder(engine, recipe, x, y);
  recipe.explanation = std::string("implementation ") + recipe.stages.front().primitive.impl_info_str() + "; formats " +
                       format_name(from) + " to " + format_name(to);
  return recipe;
}

Recipe recipe_of(const dnnl::engine& engine, const Transpose& t) {
  const dnnl::memory::dims dims{t.rows, t.columns};
  const dnnl::memory::desc turned(dims, data_type(t.dtype), dnnl::memory::dims{1, t.rows});
  return movement_recipe(engine, row_major(dims, t.dtype), turned);
}

Recipe recipe_of(const dnnl::engine& engine, const Reorder& r) {
  return movement_recipe(engine, image(r.shape, r.dtype, r.from), image(r.shape, r.dtype, r.to));
}

}  // namespace

// Two faults besides has_column_of_padding(), has_endless_kernel() and has_crashing_window(), found in 3.7.2 by random
// layers like these; the kernels for 1x1 windows are others and have neither:
// - A single output column with a horizontal stride: some rows are wrong, with AMX in bf16 (242 of 372 such layers)
//   and f16, without it in f32 with one input channel.
// - A stride larger than the window, with AMX: the buffer for a block of the image is too small, and what is behind it
//   is overwritten (oneDNN's pull request 5494, which mends 3.13).
std::string brgemm_fault(const Conv2d& c) {
  const std::int64_t rows = c.weights[2], columns = c.weights[3];
  if (has_column_of_padding(c)) return "crashes on columns of padding";
  if (has_endless_kernel(c)) return "does not end making a kernel for windows that wide on so few channels";
  if (has_crashing_window(c)) return "crashes on windows that large on one channel less than a multiple of 32";
  if (rows * columns == 1) return "";
  if (conv_output_shape(c)[3] == 1 && c.stride.w > 1) {
    return "is wrong on a single output column with a horizontal stride";
  }
  const bool jumps = c.stride.h > rows || c.stride.w > columns;
  return jumps ? "writes beyond its buffers where a stride is larger than the window" : "";
}

const std::vector<std::string>& kernels() {
  static const std::vector<std::string> names{kDirect, kWinograd, kMatmul, kPooling, kBinary, kReorder};
  return names;
}

bool considers(const std::string& kernel, const Op& op) {
  if (std::holds_alternative<Conv2d>(op)) return kernel == kDirect || kernel == kWinograd;
  if (std::holds_alternative<Matmul>(op)) return kernel == kMatmul;
  if (std::holds_alternative<MaxPool>(op)) return kernel == kPooling;
  if (std::holds_alternative<Add>(op)) return kernel == kBinary;
  return kernel == kReorder;
}

Recipe make_recipe(const dnnl::engine& engine, const Op& op, const std::string& kernel) {
  if (!considers(kernel, op)) {
    throw Error(ErrorCode::unsupported, "kernel " + kernel + " does not compute " + std::string(name(op)));
  }
  if (const auto* c = std::get_if<Conv2d>(&op)) return convolution_recipe(engine, *c, kernel);
  if (const auto* m = std::get_if<Matmul>(&op)) return matmul_recipe(engine, *m);
  if (const auto* p = std::get_if<MaxPool>(&op)) return pooling_recipe(engine, *p);
  if (const auto* a = std::get_if<Add>(&op)) return add_recipe(engine, *a);
  if (const auto* t = std::get_if<Transpose>(&op)) return recipe_of(engine, *t);
  if (const auto* r = std::get_if<Reorder>(&op)) return recipe_of(engine, *r);
  throw Error(ErrorCode::unsupported, "gable has no " + std::string(name(op)) + " by oneDNN; cpu has one");
}

}  // namespace gable::onednn
