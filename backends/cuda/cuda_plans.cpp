// See cuda_plans.h.
#include "backends/cuda/cuda_plans.h"

#include <algorithm>
#include <array>

#include "backends/cuda/weighted_kernels.h"
#include "backends/problems.h"
#include "cuda/ops/elementwise.h"
#include "cuda/ops/pool.h"
#include "cuda/ops/reorder.h"
#include "cuda/ops/transpose.h"

namespace gable {
namespace {

PlanDetails moving_details(const Op& op, const CudaDevice& device) {
  const std::string kernel(name(op));
  return {.kernel = kernel,
          .explanation = "cuda: kernel " + kernel + " on " + device.properties().name,
          .fused = true,
          .bound = f32_accumulation_bound(1, dtype_of(op), Activation::none)};
}

/// An op without weights, and the launch that does it.
template <typename MovingOp>
class CudaMovingPlan final : public CudaPlan {
 public:
  CudaMovingPlan(const MovingOp& op, const CudaDevice& device)
      : CudaPlan(moving_details(op, device), device, op), op_(op) {}

 private:
  void launch(const RunArguments& a, cudaStream_t stream) override { launch_op(op_, a, stream); }

  static void launch_op(const MaxPool& op, const RunArguments& a, cudaStream_t stream) {
    cuda::max_pool(problem_of(op), a.inputs[0], a.output, stream);
  }

  static void launch_op(const Add& op, const RunArguments& a, cudaStream_t stream) {
    cuda::add(a.inputs[0], a.inputs[1], a.output, op.shape.elements(), op.dtype, stream);
  }

  static void launch_op(const Transpose& op, const RunArguments& a, cudaStream_t stream) {
    cuda::transpose(a.inputs[0], a.output, 1, op.rows, op.columns, static_cast<int>(size_of(op.dtype)), stream);
  }

  static void launch_op(const Reorder& op, const RunArguments& a, cudaStream_t stream) {
    const Shape& s = op.shape;
    const std::int64_t pixels = s[2] * s[3];
    if (op.from == op.to) {
      const std::size_t bytes = static_cast<std::size_t>(s.elements()) * size_of(op.dtype);
      GABLE_CUDA_CHECK(cudaMemcpyAsync(a.output, a.inputs[0], bytes, cudaMemcpyDeviceToDevice, stream));
      return;
    }
    const auto reorder = op.to == Layout::nhwc ? cuda::nchw_to_nhwc : cuda::nhwc_to_nchw;
    reorder(a.inputs[0], a.output, s[0], s[1], pixels, static_cast<int>(size_of(op.dtype)), stream);
  }

  MovingOp op_;
};

constexpr std::array kMovingKernels{"max_pool", "add", "transpose", "reorder"};

std::unique_ptr<PlanImpl> make_weighted_plan(const Op& op, const CudaDevice& device, const std::string& only) {
  const WeightedOp weighted = weighted_op(op);
  std::string refused;
  for (const WeightedKernel& kernel : weighted_kernels()) {
    if (!only.empty() && only != kernel.name) continue;
    const std::string reason = refusal(kernel, weighted, device.properties());
    if (!reason.empty()) {
      refused += "refused " + std::string(kernel.name) + ": " + reason + "\n";
      continue;
    }
    std::unique_ptr<PlanImpl> plan = kernel.make(weighted, device);
    plan->prepend_explanation(refused);
    return plan;
  }
  throw Error(ErrorCode::unsupported, "no kernel for " + describe(op) + "\n" + refused);
}

std::unique_ptr<PlanImpl> make_moving_plan(const Op& op, const CudaDevice& device) {
  return std::visit(
      [&]<typename T>(const T& moving) -> std::unique_ptr<PlanImpl> {
        if constexpr (std::is_same_v<T, Conv2d> || std::is_same_v<T, Matmul>) {
          return make_weighted_plan(op, device, "");
        } else {
          return std::make_unique<CudaMovingPlan<T>>(moving, device);
        }
      },
      op);
}

std::vector<KernelSupport> query_weighted(const Op& op, const cudaDeviceProp& device, const std::string& only) {
  const WeightedOp weighted = weighted_op(op);
  std::vector<KernelSupport> answers;
  for (const WeightedKernel& kernel : weighted_kernels()) {
    if (!only.empty() && only != kernel.name) continue;
    const std::string reason = refusal(kernel, weighted, device);
    answers.push_back({.kernel = kernel.name, .supported = reason.empty(), .reason = reason});
  }
  return answers;
}

}  // namespace

std::vector<std::string> cuda_kernels() {
  std::vector<std::string> names;
  for (const WeightedKernel& kernel : weighted_kernels()) names.emplace_back(kernel.name);
  names.insert(names.end(), kMovingKernels.begin(), kMovingKernels.end());
  return names;
}

std::vector<std::string> cuda_kernels(const cudaDeviceProp& device) {
  std::vector<std::string> names;
  for (const WeightedKernel& kernel : weighted_kernels()) {
    if (kernel.missing(device).empty()) names.emplace_back(kernel.name);
  }
  names.insert(names.end(), kMovingKernels.begin(), kMovingKernels.end());
  return names;
}

std::vector<KernelSupport> query_cuda(const Op& op, const cudaDeviceProp& device, const std::string& only) {
  std::vector<KernelSupport> answers;
  if (has_weights(op)) {
    answers = query_weighted(op, device, only);
  } else if (only.empty() || only == name(op)) {
    answers.push_back({.kernel = std::string(name(op)), .supported = true, .reason = ""});
  }
  if (answers.empty()) {
    answers.push_back({.kernel = only, .supported = false, .reason = "it is no kernel for " + std::string(name(op))});
  }
  return answers;
}

std::unique_ptr<PlanImpl> make_cuda_plan(const Op& op, const CudaDevice& device, const std::string& only) {
  return has_weights(op) ? make_weighted_plan(op, device, only) : make_moving_plan(op, device);
}

}  // namespace gable
