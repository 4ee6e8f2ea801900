// See cpu_plans.h.
#include "backends/cpu/cpu_plans.h"

#include <gable/error.h>

#include <algorithm>
#include <array>

#include "backends/cpu/weighted_kernels.h"
#include "backends/problems.h"
#include "cpu/ops/elementwise.h"
#include "cpu/ops/pool.h"
#include "cpu/ops/transpose.h"

namespace gable {
namespace {

PlanDetails moving_details(const Op& op, const std::string& kernel, const cpu::Target& target, int threads,
                           std::size_t workspace_bytes) {
  return {.kernel = kernel,
          .explanation = "cpu: kernel " + kernel + ", target " + std::string(target.name) + "; " +
                         std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
          .fused = true,
          .bound = f32_accumulation_bound(1, dtype_of(op), Activation::none),
          .workspace_bytes = workspace_bytes};
}

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
    const std::int64_t count = add_.shape.elements();
    const DType type = add_.dtype;
    if (!add_.tile) return cpu::add(a.inputs[0], a.inputs[1], a.output, count, type, target_, threads_);
    const cpu::AddTile tile{.lanes = add_.tile.row_chunk, .steps = add_.tile.free_dim};
    cpu::add_in_tiles(a.inputs[0], a.inputs[1], a.output, count, tile, type, target_, threads_);
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

/// Ops without weights have one kernel each, named after the op.
struct MovingMaker {
  const cpu::Target& target;
  int threads;

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
  template <typename Weighted>
  std::unique_ptr<PlanImpl> operator()(const Weighted& op) const {
    throw Error(ErrorCode::unsupported, "no kernel for " + describe(op));  // make_cpu_plan() never comes here
  }
};

constexpr std::array kMovingKernels{"max_pool", "add", "transpose", "reorder"};

std::unique_ptr<PlanImpl> make_weighted_plan(const Op& op, const cpu::Target& target, int threads,
                                             const std::string& only) {
  const WeightedOp weighted = weighted_op(op);
  for (const WeightedKernel& kernel : weighted_kernels()) {
    const bool wanted = only.empty() || only == kernel.name;
    if (wanted && refusal(kernel, weighted, target).empty()) return kernel.make(weighted, target, threads);
  }
  throw Error(ErrorCode::unsupported, "no kernel for " + describe(op));
}

std::vector<KernelSupport> query_weighted(const Op& op, const cpu::Target& target, const std::string& only) {
  const WeightedOp weighted = weighted_op(op);
  std::vector<KernelSupport> answers;
  for (const WeightedKernel& kernel : weighted_kernels()) {
    if (!only.empty() && only != kernel.name) continue;
    const std::string reason = refusal(kernel, weighted, target);
    answers.push_back({.kernel = kernel.name, .supported = reason.empty(), .reason = reason});
  }
  return answers;
}

}  // namespace

std::vector<std::string> cpu_kernels() {
  std::vector<std::string> names;
  for (const WeightedKernel& kernel : weighted_kernels()) names.emplace_back(kernel.name);
  names.insert(names.end(), kMovingKernels.begin(), kMovingKernels.end());
  return names;
}

std::vector<std::string> cpu_kernels(const cpu::Target& target) {
  std::vector<std::string> names;
  for (const WeightedKernel& kernel : weighted_kernels()) {
    if (kernel.missing(target).empty()) names.emplace_back(kernel.name);
  }
  names.insert(names.end(), kMovingKernels.begin(), kMovingKernels.end());
  return names;
}

std::vector<KernelSupport> query_cpu(const Op& op, const cpu::Target& target, const std::string& only) {
  std::vector<KernelSupport> answers;
  if (has_weights(op)) {
    answers = query_weighted(op, target, only);
  } else if (only.empty() || only == name(op)) {
    answers.push_back({.kernel = std::string(name(op)), .supported = true, .reason = ""});
  }
  if (answers.empty()) {
    answers.push_back({.kernel = only, .supported = false, .reason = "it is no kernel for " + std::string(name(op))});
  }
  return answers;
}

std::unique_ptr<PlanImpl> make_cpu_plan(const Op& op, const cpu::Target& target, int threads, const std::string& only) {
  try {
    if (has_weights(op)) return make_weighted_plan(op, target, threads, only);
    return std::visit(MovingMaker{target, threads}, op);
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorCode::invalid_argument, error.what());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no host memory for the workspace of " + describe(op));
  }
}

}  // namespace gable
