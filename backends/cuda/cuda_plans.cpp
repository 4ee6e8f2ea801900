// See cuda_plans.h.
#include "backends/cuda/cuda_plans.h"

#include "backends/problems.h"
#include "cuda/ops/activate.h"
#include "cuda/ops/bilinear.h"
#include "cuda/ops/concat.h"
#include "cuda/ops/elementwise.h"
#include "cuda/ops/multiply.h"
#include "cuda/ops/pool.h"
#include "cuda/ops/reorder.h"
#include "cuda/ops/softmax.h"
#include "cuda/ops/transpose.h"
#include "cuda/ops/upsample.h"

namespace gable {
namespace {

/// The details of an op without weights, whose kernel has the op's name.
PlanDetails details_of(const Op& op, const CudaDevice& device) {
  const std::string kernel(name(op));
  return {.kernel = kernel,
          .explanation = "cuda: kernel " + kernel + " on " + device.properties().name,
          .fused = true,
          .bound = unweighted_bound(op)};
}

/// An op without weights, and the launch that does it.
template <typename UnweightedOp>
class UnweightedPlan final : public CudaPlan {
 public:
  UnweightedPlan(const UnweightedOp& op, const CudaDevice& device)
      : CudaPlan(details_of(op, device), device, op), op_(op) {}

 private:
  void launch(const RunArguments& a, cudaStream_t stream) override { launch_op(op_, a, stream); }

  static void launch_op(const MaxPool& op, const RunArguments& a, cudaStream_t stream) {
    cuda::max_pool(problem_of(op), a.inputs[0], a.output, stream);
  }

  static void launch_op(const Add& op, const RunArguments& a, cudaStream_t stream) {
    cuda::add({.count = op.shape.elements(), .type = op.dtype, .activation = op.activation}, a.inputs[0], a.inputs[1],
              a.output, stream);
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

  static void launch_op(const Activate& op, const RunArguments& a, cudaStream_t stream) {
    cuda::activate(problem_of(op), a.inputs[0], a.output, stream);
  }

  static void launch_op(const Concat& op, const RunArguments& a, cudaStream_t stream) {
    cuda::concat(problem_of(op), a.inputs[0], a.inputs[1], a.output, stream);
  }

  static void launch_op(const Upsample& op, const RunArguments& a, cudaStream_t stream) {
    if (op.interpolation != Interpolation::nearest) {
      return cuda::upsample_bilinear(bilinear_problem_of(op), a.inputs[0], a.output, stream);
    }
    cuda::upsample(problem_of(op), a.inputs[0], a.output, stream);
  }

  static void launch_op(const Multiply& op, const RunArguments& a, cudaStream_t stream) {
    cuda::multiply(problem_of(op), a.inputs[0], a.inputs[1], a.output, stream);
  }

  static void launch_op(const Softmax& op, const RunArguments& a, cudaStream_t stream) {
    cuda::softmax(problem_of(op), a.inputs[0], a.output, stream);
  }

  UnweightedOp op_;
};

std::unique_ptr<PlanImpl> make_unweighted(const Op& op, const CudaDevice& device) {
  return std::visit(
      [&]<typename T>(const T& one) -> std::unique_ptr<PlanImpl> {
        if constexpr (std::is_same_v<T, Conv2d> || std::is_same_v<T, Matmul>) {
          throw Error(ErrorCode::unsupported, describe(op) + " has weights");  // KernelList never comes here
        } else {
          return std::make_unique<UnweightedPlan<T>>(one, device);
        }
      },
      op);
}

}  // namespace

const CudaKernels& cuda_kernels() {
  static const CudaKernels kernels(weighted_kernels(), make_unweighted);
  return kernels;
}

}  // namespace gable
