// See weighted_kernels.h.
#include "backends/cuda/weighted_kernels.h"

#include <algorithm>
#include <limits>

#include "cuda/depthwise/depthwise.h"
#include "cuda/few_channels/few_channels.h"
#include "cuda/few_channels/few_channels_mma.h"
#include "cuda/few_channels/one_channel.h"
#include "cuda/few_outputs/few_outputs.h"
#include "cuda/gemm/few_pixels.h"
#include "cuda/gemm/implicit_gemm.h"
#include "cuda/gemm/pointwise.h"
#include "cuda/gemm/pointwise_planes.h"
#include "cuda/gemm/register_tile.h"
#include "cuda/grouped/as_one_group.h"
#include "cuda/grouped/grouped.h"
#include "cuda/grouped/grouped_mma.h"
#include "cuda/ladder/constant.h"
#include "cuda/ladder/naive.h"
#include "cuda/ladder/tiled.h"
#include "cuda/wgmma/bf16_parts.h"
#include "cuda/wgmma/conv2d.h"
#include "cuda/wgmma/geometry.h"

namespace gable {
namespace {

std::string explain(const cuda::Conv2dDescription& d, const cudaDeviceProp& device) {
  return "cuda: kernel " + d.kernel + " on " + device.name + "; " + d.tile + "; " + d.staging + "; " + d.fusion;
}

template <typename KernelPlan>
PlanDetails details_of(const ErrorBound& bound, const KernelPlan& plan, const cudaDeviceProp& device) {
  const cuda::Conv2dDescription d = plan.description();
  return {.kernel = d.kernel,
          .explanation = explain(d, device),
          .fused = d.fused,
          .bound = bound,
          .workspace_bytes = plan.workspace_bytes(),
          .packed_bytes = plan.packed_bytes(),
          .packing_key = packing_key("cuda", plan.packing())};
}

template <typename KernelPlan>
class CudaWeightedPlan final : public CudaPlan {
 public:
  CudaWeightedPlan(const WeightedOp& op, const ErrorBound& bound, const CudaDevice& device, KernelPlan plan)
      : CudaPlan(details_of(bound, plan, device.properties()), device, op.op, KernelPlan::kAlignment),
        strides_(op.strides),
        plan_(std::move(plan)) {}

 private:
  void launch_pack(const void* weights, void* packed) override { plan_.pack(weights, strides_, packed, nullptr); }
  void launch(const RunArguments& a, cudaStream_t stream) override {
    plan_.run(a.inputs[0], a.weights, a.bias, a.output, workspace(), stream);
  }

  WeightStrides strides_;
  KernelPlan plan_;
};

/// The share of a sum of `count` products that tensor cores lose by truncation: see mma_bound().
double cut_off(std::int64_t count) { return static_cast<double>(count + 7) / 8 * 0x1p-23; }

/// The terms of a sum, counting those that an addition of eight terms adds together with zeros: with several groups in
/// a product of matrices, a group's channels may begin and end within such eight.
std::int64_t terms_of_additions(const WeightedOp& op) {
  const Conv2dProblem& p = op.problem;
  constexpr std::int64_t kTogether = 8;
  const std::int64_t c = p.group_c();
  if (p.groups == 1 || c % kTogether == 0) return terms(op.op);
  const std::int64_t additions = kTogether % c == 0 ? 1 : (c + kTogether - 2) / kTogether + 1;
  return p.r * p.s * additions * kTogether;
}

/// The bound of mma.sync, with M = sum |x||w| + |bias| over n terms:
///   Sums. A product of 16-bit or tf32 values is exact in f32. An instruction adds 8 or 16 of them to the sum with its
///     addends cut to about 24 bits: beside the bound of f32 accumulation, up to 2^-23 of the sum for each eight terms,
///     always towards zero, so it adds up.
///   tf32. Both operands are rounded to 10 bits of mantissa to nearest: 2^-11 each.
ErrorBound mma_bound(const WeightedOp& op) {
  ErrorBound bound = f32_bound(op);
  bound.accumulation += cut_off(terms_of_additions(op));
  if (op.problem.math == Math::tf32) bound.accumulation += 2 * 0x1p-11 * (1 + 0x1p-11);
  return bound;
}

/// f32 sums; as tf32 the weights are rounded when they are packed.
ErrorBound few_pixels_bound(const WeightedOp& op) {
  return op.problem.math == Math::tf32 ? mma_bound(op) : f32_bound(op);
}

/// The bound of wgmma: as for mma.sync, but tf32 values of x are truncated to 10 bits of mantissa, 2^-10; weights are
/// rounded.
/// With products of bf16 parts:
///   split3. x = hi + mid + e, |mid| <= 2^-8 |x|, |e| <= 2^-16 |x|, and w likewise. Left out are mid·mid, e·w and x·e,
///     each at most 2^-16 |x||w|: 3·2^-16 M, and 2^-7 of that for terms of higher order. Sums have 3n products.
///   split6. x = hi + mid + lo exactly, |lo| <= 2^-16 |x|. Left out are mid·lo and lo·mid, each at most 2^-24 |x||w|,
///     and lo·lo: 2·2^-24 M, and 2^-7 of that. The tensor cores cut sums of one chunk of hi·hi, and of the five other
///     products, which are 2^-6.9 of them; chunks are added up in f32.
///   Parts below 2^-126 may be taken as zero: n·2^-101 for operands up to 2^24.
ErrorBound wgmma_bound(const WeightedOp& op) {
  const std::int64_t n = terms_of_additions(op);
  ErrorBound bound = f32_bound(op);
  switch (op.problem.math) {
    case Math::split3:
      bound.accumulation += 3 * 0x1p-16 * (1 + 0x1p-7) + cut_off(3 * n);
      bound.absolute += static_cast<double>(n) * 0x1p-101;
      return bound;
    case Math::split6: {
      constexpr std::int64_t kChunk = cuda::kWgmmaChunkTaps * cuda::kPartChannels;
      bound.accumulation += 2 * 0x1p-24 * (1 + 0x1p-7) + cut_off(std::min(n, kChunk)) + 0x1p-6 * cut_off(5 * n);
      bound.absolute += static_cast<double>(n) * 0x1p-101;
      return bound;
    }
    case Math::tf32:
      bound = mma_bound(op);
      bound.accumulation += 0x1p-11;
      return bound;
    default:
      return mma_bound(op);
  }
}

template <typename KernelPlan>
std::string refuse(const WeightedOp& op, const cudaDeviceProp& device) {
  return KernelPlan::refusal(op.problem, device);
}

template <typename KernelPlan, ErrorBound (*bound)(const WeightedOp&)>
std::unique_ptr<PlanImpl> make(const WeightedOp& op, const CudaDevice& device) {
  return std::make_unique<CudaWeightedPlan<KernelPlan>>(op, bound(op), device,
                                                        KernelPlan(op.problem, device.properties()));
}

template <typename Kernel>
double seconds(const WeightedOp& op, const CudaDevice& device) {
  return Kernel::seconds(op.problem, device.properties());
}

/// Groups of one channel are left to the kernels for them, and to those without an estimate.
template <typename KernelPlan>
double dense_seconds(const WeightedOp& op, const CudaDevice& device) {
  const Conv2dProblem& p = op.problem;
  if (p.groups > 1 && p.group_c() == 1) return std::numeric_limits<double>::infinity();
  return KernelPlan::seconds(p, device.properties());
}

/// Kernels that also compute groups as one, with zeros among the weights.
constexpr char kWgmmaOneGroup[] = "wgmma, one group";
constexpr char kImplicitGemmOneGroup[] = "implicit_gemm, one group";
constexpr char kFewChannelsOneGroup[] = "few_channels_mma, one group";
using WgmmaOrOneGroup = cuda::Conv2dKernel<cuda::OrAsOneGroup<cuda::WgmmaWithReorders, kWgmmaOneGroup>>;
using ImplicitGemmOrOneGroup =
    cuda::Conv2dKernel<cuda::OrAsOneGroup<cuda::WithReorders<cuda::ImplicitGemmMma>, kImplicitGemmOneGroup>>;
using FewChannelsMmaOrOneGroup =
    cuda::Conv2dKernel<cuda::OrAsOneGroup<cuda::FewChannelsMmaKernel, kFewChannelsOneGroup>>;

/// The estimate of one_channel is of layers of one group.
template <typename KernelPlan>
double one_group_seconds(const WeightedOp& op, const CudaDevice& device) {
  if (op.problem.groups > 1) return std::numeric_limits<double>::infinity();
  return KernelPlan::seconds(op.problem, device.properties());
}

template <typename KernelPlan>
constexpr CudaKernels::Kernel f32_accumulating(const char* name) {
  return {name, nothing_missing<cudaDeviceProp>, refuse<KernelPlan>, make<KernelPlan, f32_bound>};
}

/// Kernels without an estimate, best first. The slower steps of the ladder come last; naive runs every op.
constexpr CudaKernels::Kernel kKernels[] = {
    {"depthwise", nothing_missing<cudaDeviceProp>, refuse<cuda::DepthwiseConv2d>,
     make<cuda::DepthwiseConv2d, f32_bound>, seconds<cuda::Depthwise>},
    {"one_channel", nothing_missing<cudaDeviceProp>, refuse<cuda::OneChannelConv2d>,
     make<cuda::OneChannelConv2d, f32_bound>, one_group_seconds<cuda::OneChannelConv2d>},
    {"few_channels_mma", nothing_missing<cudaDeviceProp>, refuse<FewChannelsMmaOrOneGroup>,
     make<FewChannelsMmaOrOneGroup, mma_bound>, seconds<FewChannelsMmaOrOneGroup>},
    {"few_channels", nothing_missing<cudaDeviceProp>, refuse<cuda::FewChannelsConv2d>,
     make<cuda::FewChannelsConv2d, f32_bound>, dense_seconds<cuda::FewChannelsConv2d>},
    {"few_pixels", nothing_missing<cudaDeviceProp>, refuse<cuda::FewPixelsConv2d>,
     make<cuda::FewPixelsConv2d, few_pixels_bound>, seconds<cuda::FewPixelsConv2d>},
    {"few_outputs", cuda::FewOutputsConv2d::missing, refuse<cuda::FewOutputsConv2d>,
     make<cuda::FewOutputsConv2d, mma_bound>, seconds<cuda::FewOutputsConv2d>},
    {"wgmma", WgmmaOrOneGroup::missing, refuse<WgmmaOrOneGroup>, make<WgmmaOrOneGroup, wgmma_bound>,
     seconds<WgmmaOrOneGroup>},
    {"implicit_gemm", ImplicitGemmOrOneGroup::missing, refuse<ImplicitGemmOrOneGroup>,
     make<ImplicitGemmOrOneGroup, mma_bound>, seconds<ImplicitGemmOrOneGroup>},
    {"pointwise", cuda::PointwiseConv2d::missing, refuse<cuda::PointwiseConv2d>, make<cuda::PointwiseConv2d, mma_bound>,
     dense_seconds<cuda::PointwiseConv2d>},
    {"pointwise_planes", cuda::PointwisePlanesConv2d::missing, refuse<cuda::PointwisePlanesConv2d>,
     make<cuda::PointwisePlanesConv2d, mma_bound>, dense_seconds<cuda::PointwisePlanesConv2d>},
    {"grouped", nothing_missing<cudaDeviceProp>, refuse<cuda::GroupedConv2d>, make<cuda::GroupedConv2d, f32_bound>,
     seconds<cuda::GroupedConv2d>},
    {"grouped_mma", cuda::GroupedMmaConv2d::missing, refuse<cuda::GroupedMmaConv2d>,
     make<cuda::GroupedMmaConv2d, mma_bound>, seconds<cuda::GroupedMmaConv2d>},
    {"register_tile", nothing_missing<cudaDeviceProp>, refuse<cuda::RegisterTileConv2d>,
     make<cuda::RegisterTileConv2d, f32_bound>, dense_seconds<cuda::RegisterTileConv2d>},
    f32_accumulating<cuda::DoubleBufferConv2d>("double_buffer"),
    f32_accumulating<cuda::SharedConv2d>("shared"),
    f32_accumulating<cuda::ConstantConv2d>("constant"),
    f32_accumulating<cuda::NaiveConv2d>("naive"),
};

}  // namespace

std::span<const CudaKernels::Kernel> weighted_kernels() { return kKernels; }

}  // namespace gable
