// See cpu_plans.h.
#include "backends/cpu/cpu_plans.h"

#include <gable/error.h>

#include <algorithm>

#include "cpu/conv2d.h"
#include "cpu/elementwise.h"
#include "cpu/matmul.h"
#include "cpu/pool.h"
#include "cpu/transpose.h"

namespace gable {
namespace {

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

std::string explain(const cpu::Conv2dDescription& d) {
  return "cpu: kernel " + d.kernel + ", target " + d.target + "; register tile " + d.tile + "; " + d.blocking + "; " +
         d.fusion + "; " + std::to_string(d.threads) + (d.threads == 1 ? " thread" : " threads");
}

/// Everything that decides the order of packed weights.
std::uint64_t key_of(const Op& op, const cpu::Conv2dDescription& d) {
  return packing_key("cpu " + describe(op) + " " + d.kernel + " " + d.target + " " + d.tile + " " + d.blocking);
}

template <typename KernelPlan>
PlanDetails weighted_details(const Op& op, Activation activation, const KernelPlan& plan) {
  const cpu::Conv2dDescription d = plan.description();
  return {.kernel = d.kernel,
          .explanation = explain(d),
          .fused = true,
          .bound = f32_accumulation_bound(terms(op), dtype_of(op), activation),
          .workspace_bytes = plan.workspace_bytes(),
          .packed_bytes = plan.packed_floats() * sizeof(float),
          .packing_key = key_of(op, d)};
}

PlanDetails moving_details(const Op& op, const std::string& kernel, const cpu::Target& target, int threads,
                           std::size_t workspace_bytes) {
  return {.kernel = kernel,
          .explanation = "cpu: kernel " + kernel + ", target " + std::string(target.name) + "; " +
                         std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
          .fused = true,
          .bound = f32_accumulation_bound(1, dtype_of(op), Activation::none),
          .workspace_bytes = workspace_bytes};
}

class CpuConv2d final : public PlanImpl {
 public:
  CpuConv2d(const Conv2d& conv, cpu::Conv2dPlan plan)
      : PlanImpl(weighted_details(conv, conv.epilogue.activation, plan)), plan_(std::move(plan)) {}
  void pack(const void* weights, void* packed) override { plan_.pack(weights, static_cast<float*>(packed)); }
  void run(const RunArguments& a) override {
    plan_.run(a.inputs[0], static_cast<const float*>(a.weights), a.bias, a.output);
  }

 private:
  cpu::Conv2dPlan plan_;
};

class CpuMatmul final : public PlanImpl {
 public:
  CpuMatmul(const Matmul& matmul, cpu::MatmulPlan plan)
      : PlanImpl(weighted_details(matmul, matmul.activation, plan)), plan_(std::move(plan)) {}
  void pack(const void* weights, void* packed) override { plan_.pack(weights, static_cast<float*>(packed)); }
  void run(const RunArguments& a) override {
    plan_.run(a.inputs[0], static_cast<const float*>(a.weights), a.bias, a.output);
  }

 private:
  cpu::MatmulPlan plan_;
};

class CpuMaxPool final : public PlanImpl {
 public:
  CpuMaxPool(const MaxPool& pool, const cpu::Target& target, int threads, cpu::MaxPoolPlan plan)
      : PlanImpl(moving_details(pool, "max_pool", target, threads, plan.workspace_bytes())), plan_(std::move(plan)) {}
  void run(const RunArguments& a) override { plan_.run(a.inputs[0], a.output); }

 private:
  cpu::MaxPoolPlan plan_;
};

class CpuAdd final : public PlanImpl {
 public:
  CpuAdd(const Add& add, const cpu::Target& target, int threads)
      : PlanImpl(moving_details(add, "add", target, threads, 0)), add_(add), target_(target), threads_(threads) {}
  void run(const RunArguments& a) override {
    cpu::add(a.inputs[0], a.inputs[1], a.output, add_.shape.elements(), type_of(add_.dtype), target_, threads_);
  }

 private:
  Add add_;
  const cpu::Target& target_;
  int threads_;
};

class CpuTranspose final : public PlanImpl {
 public:
  CpuTranspose(const Transpose& transpose, const cpu::Target& target, int threads)
      : PlanImpl(moving_details(transpose, "transpose", target, threads, 0)),
        shape_{.rows = transpose.rows,
               .columns = transpose.columns,
               .x_stride = transpose.columns,
               .y_stride = transpose.rows},
        element_bytes_(static_cast<int>(size_of(transpose.dtype))),
        target_(target),
        threads_(threads) {}
  void run(const RunArguments& a) override {
    cpu::transpose(shape_, a.inputs[0], a.output, element_bytes_, target_, threads_);
  }

 private:
  cpu::Transpose2d shape_;
  int element_bytes_;
  const cpu::Target& target_;
  int threads_;
};

class CpuReorder final : public PlanImpl {
 public:
  CpuReorder(const Reorder& reorder, const cpu::Target& target, int threads)
      : PlanImpl(moving_details(reorder, "reorder", target, threads, 0)),
        reorder_(reorder),
        target_(target),
        threads_(threads) {}

  void run(const RunArguments& a) override {
    const Shape& s = reorder_.shape;
    const auto bytes = static_cast<int>(size_of(reorder_.dtype));
    if (reorder_.from == reorder_.to) {
      // One column: a transpose of a matrix of one row copies it.
      cpu::transpose({.rows = 1, .columns = s.elements(), .x_stride = s.elements(), .y_stride = 1}, a.inputs[0],
                     a.output, bytes, target_, threads_);
    } else if (reorder_.to == Layout::nhwc) {
      cpu::nchw_to_nhwc(a.inputs[0], a.output, s[0], s[1], s[2], s[3], bytes, target_, threads_);
    } else {
      cpu::nhwc_to_nchw(a.inputs[0], a.output, s[0], s[1], s[2], s[3], bytes, target_, threads_);
    }
  }

 private:
  Reorder reorder_;
  const cpu::Target& target_;
  int threads_;
};

Math math_of(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->math;
  if (const auto* matmul = std::get_if<Matmul>(&op)) return matmul->math;
  return Math::strict;
}

constexpr const char* kDirect = "direct";
constexpr const char* kDepthwise = "depthwise";

bool is_depthwise(const Conv2d& conv) {
  return conv.groups > 1 && conv.weights[1] == 1 && conv.weights[0] == conv.groups;
}

std::vector<std::string> kernels_for(const Op& op) {
  if (std::holds_alternative<Conv2d>(op)) return {kDepthwise, kDirect};
  if (std::holds_alternative<Matmul>(op)) return {kDirect};
  return {std::string(name(op))};
}

/// Why `kernel` can't run `op`; empty if it can.
std::string refusal(const Op& op, const std::string& kernel) {
  const std::vector<std::string> fitting = kernels_for(op);
  if (std::find(fitting.begin(), fitting.end(), kernel) == fitting.end()) {
    return "it is no kernel for " + std::string(name(op));
  }
  if (const Math math = math_of(op); math != Math::strict) {
    return "math " + std::string(to_string(math)) + ": its arithmetic is strict";
  }
  const auto* conv = std::get_if<Conv2d>(&op);
  if (conv == nullptr || is_depthwise(*conv) == (kernel == kDepthwise)) return "";
  return kernel == kDepthwise
             ? "groups of " + std::to_string(conv->weights[1]) + " input and " +
                   std::to_string(conv->weights[0] / conv->groups) + " output channels; it takes groups of one each"
             : "one input and one output channel in each of several groups: the depthwise kernel takes these";
}

struct Maker {
  const cpu::Target& target;
  int threads;

  std::unique_ptr<PlanImpl> operator()(const Conv2d& op) const {
    return std::make_unique<CpuConv2d>(op, cpu::Conv2dPlan(problem_of(op), target, threads));
  }
  std::unique_ptr<PlanImpl> operator()(const Matmul& op) const {
    return std::make_unique<CpuMatmul>(op, cpu::MatmulPlan(problem_of(op), target, threads));
  }
  std::unique_ptr<PlanImpl> operator()(const MaxPool& op) const {
    return std::make_unique<CpuMaxPool>(op, target, threads, cpu::MaxPoolPlan(problem_of(op), target, threads));
  }
  std::unique_ptr<PlanImpl> operator()(const Add& op) const { return std::make_unique<CpuAdd>(op, target, threads); }
  std::unique_ptr<PlanImpl> operator()(const Transpose& op) const {
    return std::make_unique<CpuTranspose>(op, target, threads);
  }
  std::unique_ptr<PlanImpl> operator()(const Reorder& op) const {
    return std::make_unique<CpuReorder>(op, target, threads);
  }
};

}  // namespace

std::vector<std::string> cpu_kernels() { return {kDirect, kDepthwise, "max_pool", "add", "transpose", "reorder"}; }

std::vector<KernelSupport> query_cpu(const Op& op, const std::string& only) {
  std::vector<KernelSupport> answers;
  for (const std::string& kernel : only.empty() ? kernels_for(op) : std::vector<std::string>{only}) {
    const std::string reason = refusal(op, kernel);
    answers.push_back({.kernel = kernel, .supported = reason.empty(), .reason = reason});
  }
  return answers;
}

std::unique_ptr<PlanImpl> make_cpu_plan(const Op& op, const cpu::Target& target, int threads) {
  try {
    return std::visit(Maker{target, threads}, op);
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorCode::invalid_argument, error.what());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no host memory for the workspace of " + describe(op));
  }
}

}  // namespace gable
