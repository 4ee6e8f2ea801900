// See weighted_kernels.h.
#include "backends/cpu/weighted_kernels.h"

#include "backends/cpu/problems.h"
#include "cpu/conv2d.h"
#include "cpu/depthwise.h"
#include "cpu/few_channels.h"

namespace gable {
namespace {

std::string explain(const cpu::Conv2dDescription& d) {
  return "cpu: kernel " + d.kernel + ", target " + d.target + "; register tile " + d.tile + "; " + d.blocking + "; " +
         d.fusion + "; " + std::to_string(d.threads) + (d.threads == 1 ? " thread" : " threads");
}

/// Everything that decides the order of packed weights.
std::uint64_t key_of(const Op& op, const cpu::Conv2dDescription& d) {
  return packing_key("cpu " + describe(op) + " " + d.kernel + " " + d.target + " " + d.tile + " " + d.blocking);
}

template <typename KernelPlan>
PlanDetails details_of(const Op& op, const ErrorBound& bound, const KernelPlan& plan) {
  const cpu::Conv2dDescription d = plan.description();
  return {.kernel = d.kernel,
          .explanation = explain(d),
          .fused = true,
          .bound = bound,
          .workspace_bytes = plan.workspace_bytes(),
          .packed_bytes = plan.packed_bytes(),
          .packing_key = key_of(op, d)};
}

template <typename KernelPlan>
class WeightedPlan final : public PlanImpl {
 public:
  WeightedPlan(const WeightedOp& op, const ErrorBound& bound, KernelPlan plan)
      : PlanImpl(details_of(op.op, bound, plan)), strides_(op.strides), plan_(std::move(plan)) {}

  void pack(const void* weights, void* packed) override { plan_.pack(weights, strides_, packed); }
  void run(const RunArguments& a) override { plan_.run(a.inputs[0], a.weights, a.bias, a.output); }

 private:
  cpu::WeightStrides strides_;
  KernelPlan plan_;
};

Activation activation_of(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->epilogue.activation;
  return std::get<Matmul>(op).activation;
}

ErrorBound f32_bound(const Op& op) { return f32_accumulation_bound(terms(op), dtype_of(op), activation_of(op)); }

std::string strict_only(const WeightedOp& op) {
  return op.math == Math::strict ? "" : "math " + std::string(to_string(op.math)) + ": its arithmetic is strict";
}

/// Conv2dPlan chooses between its two kernels by the same rule.
bool is_depthwise(const cpu::Conv2dProblem& p) { return p.groups > 1 && p.c == p.groups && p.k == p.groups; }

std::string refuse_direct(const WeightedOp& op, const cpu::Target&) {
  if (is_depthwise(op.problem)) {
    return "one input and one output channel in each of several groups: the depthwise kernels take these";
  }
  return strict_only(op);
}

std::string refuse_depthwise_staged(const WeightedOp& op, const cpu::Target&) {
  const cpu::Conv2dProblem& p = op.problem;
  if (!is_depthwise(p)) {
    return std::to_string(p.groups) + (p.groups == 1 ? " group of " : " groups of ") + std::to_string(p.c / p.groups) +
           " input and " + std::to_string(p.k / p.groups) + " output channels; it takes several groups of one each";
  }
  return strict_only(op);
}

std::string refuse_depthwise(const WeightedOp& op, const cpu::Target& target) {
  const std::string refusal = refuse_depthwise_staged(op, target);
  return refusal.empty() ? cpu::depthwise_refusal(op.problem, target) : refusal;
}

std::unique_ptr<PlanImpl> make_depthwise_plan(const WeightedOp& op, const cpu::Target& target, int threads) {
  return std::make_unique<WeightedPlan<cpu::DepthwisePlan>>(op, f32_bound(op.op),
                                                            cpu::DepthwisePlan(op.problem, target, threads));
}

std::string refuse_few_channels(const WeightedOp& op, const cpu::Target& target) {
  const std::string refusal = cpu::few_channels_refusal(op.problem, target);
  return refusal.empty() ? strict_only(op) : refusal;
}

std::unique_ptr<PlanImpl> make_few_channels_plan(const WeightedOp& op, const cpu::Target& target, int threads) {
  return std::make_unique<WeightedPlan<cpu::FewChannelsPlan>>(op, f32_bound(op.op),
                                                              cpu::FewChannelsPlan(op.problem, target, threads));
}

std::unique_ptr<PlanImpl> make_conv2d_plan(const WeightedOp& op, const cpu::Target& target, int threads) {
  return std::make_unique<WeightedPlan<cpu::Conv2dPlan>>(op, f32_bound(op.op),
                                                         cpu::Conv2dPlan(op.problem, target, threads));
}

constexpr WeightedKernel kKernels[] = {
    {"depthwise", refuse_depthwise, make_depthwise_plan},
    {"depthwise_staged", refuse_depthwise_staged, make_conv2d_plan},
    {"few_channels", refuse_few_channels, make_few_channels_plan},
    {"direct", refuse_direct, make_conv2d_plan},
};

}  // namespace

WeightedOp weighted_op(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) {
    const cpu::Conv2dProblem problem = problem_of(*conv);
    return {op, problem, cpu::dense_strides(problem), conv->math};
  }
  const auto& matmul = std::get<Matmul>(op);
  const cpu::MatmulProblem problem = problem_of(matmul);
  return {op, cpu::as_conv2d(problem), cpu::dense_strides(problem), matmul.math};
}

std::span<const WeightedKernel> weighted_kernels() { return kKernels; }

}  // namespace gable
