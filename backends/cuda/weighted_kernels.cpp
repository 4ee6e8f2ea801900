// See weighted_kernels.h.
#include "backends/cuda/weighted_kernels.h"

#include "backends/cuda/problems.h"
#include "cuda/naive.h"
#include "cuda/wgmma_conv2d.h"

namespace gable {
namespace {

std::string explain(const cuda::Conv2dDescription& d, const cudaDeviceProp& device) {
  return "cuda: kernel " + d.kernel + " on " + device.name + "; " + d.tile + "; " + d.staging + "; " + d.fusion;
}

/// Everything that decides the order of packed weights.
std::uint64_t key_of(const Op& op, const cuda::Conv2dDescription& d) {
  return packing_key("cuda " + describe(op) + " " + d.kernel + " " + d.tile);
}

template <typename KernelPlan>
PlanDetails details_of(const WeightedOp& op, const ErrorBound& bound, const KernelPlan& plan,
                       const cudaDeviceProp& device) {
  const cuda::Conv2dDescription d = plan.description();
  return {.kernel = d.kernel,
          .explanation = explain(d, device),
          .fused = d.fused,
          .bound = bound,
          .workspace_bytes = plan.workspace_bytes(),
          .packed_bytes = plan.packed_bytes(),
          .packing_key = key_of(op.op, d)};
}

template <typename KernelPlan>
class CudaWeightedPlan final : public CudaPlan {
 public:
  CudaWeightedPlan(const WeightedOp& op, const ErrorBound& bound, const CudaDevice& device, KernelPlan plan)
      : CudaPlan(details_of(op, bound, plan, device.properties()), device, op.op, KernelPlan::kAlignment),
        strides_(op.strides),
        plan_(std::move(plan)) {}

 private:
  void launch_pack(const void* weights, void* packed) override { plan_.pack(weights, strides_, packed, nullptr); }
  void launch(const RunArguments& a, cudaStream_t stream) override {
    plan_.run(a.inputs[0], a.weights, a.bias, a.output, workspace(), stream);
  }

  cuda::WeightStrides strides_;
  KernelPlan plan_;
};

Activation activation_of(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->epilogue.activation;
  return std::get<Matmul>(op).activation;
}

ErrorBound f32_bound(const WeightedOp& op) {
  return f32_accumulation_bound(terms(op.op), dtype_of(op.op), activation_of(op.op));
}

/// Tensor cores cut each sum of 16 products (8 of tf32) to f32 instead of rounding it, and cut tf32 values of x to 10 bits
/// of mantissa where weights are rounded when they are packed.
ErrorBound tensor_core_bound(const WeightedOp& op) {
  ErrorBound bound = f32_bound(op);
  const bool tf32 = op.problem.type == cuda::Type::f32;
  bound.accumulation += static_cast<double>(terms(op.op)) / (tf32 ? 8 : 16) * 0x1p-23;
  if (tf32) bound.accumulation += 0x1p-10 + 0x1p-11 + 0x1p-20;
  return bound;
}

std::string nothing_missing(const cudaDeviceProp&) { return ""; }

template <typename KernelPlan>
std::string refuse(const WeightedOp& op, const cudaDeviceProp& device) {
  return KernelPlan::refusal(op.problem, device);
}

template <typename KernelPlan, ErrorBound (*bound)(const WeightedOp&)>
std::unique_ptr<PlanImpl> make(const WeightedOp& op, const CudaDevice& device) {
  return std::make_unique<CudaWeightedPlan<KernelPlan>>(op, bound(op), device,
                                                        KernelPlan(op.problem, device.properties()));
}

constexpr WeightedKernel kKernels[] = {
    {"wgmma", cuda::WgmmaConv2d::missing, refuse<cuda::WgmmaConv2d>, make<cuda::WgmmaConv2d, tensor_core_bound>},
    {"naive", nothing_missing, refuse<cuda::NaiveConv2d>, make<cuda::NaiveConv2d, f32_bound>},
};

}  // namespace

WeightedOp weighted_op(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return {op, problem_of(*conv), weight_strides(*conv)};
  const auto& matmul = std::get<Matmul>(op);
  return {op, problem_of(matmul), weight_strides(matmul)};
}

std::span<const WeightedKernel> weighted_kernels() { return kKernels; }

}  // namespace gable
