// See weighted_kernels.h.
#include "backends/cpu/weighted_kernels.h"

#include <limits>

#include "backends/cpu/cropped.h"
#include "backends/cpu/fastest.h"
#include "backends/cpu/folded.h"
#include "backends/cpu/reordered.h"
#include "backends/cpu/widened.h"
#include "backends/problems.h"
#include "cpu/bf16/conv2d.h"
#include "cpu/common/tiling.h"
#include "cpu/depthwise/depthwise.h"
#include "cpu/depthwise/depthwise_planes.h"
#include "cpu/depthwise/depthwise_staged.h"
#include "cpu/direct/conv2d.h"
#include "cpu/few_channels/few_channels.h"
#include "cpu/few_outputs/few_outputs.h"
#include "cpu/narrow_groups/narrow_groups.h"
#include "cpu/planes/planes.h"
#include "cpu/pointwise/pointwise.h"

namespace gable {
namespace {

std::string explain(const cpu::Conv2dDescription& d) {
  return "cpu: kernel " + d.kernel + ", target " + d.target + "; register tile " + d.tile + "; " + d.blocking + "; " +
         d.fusion + "; " + std::to_string(d.threads) + (d.threads == 1 ? " thread" : " threads");
}

template <typename KernelPlan>
PlanDetails details_of(const ErrorBound& bound, const Arithmetic& arithmetic, const KernelPlan& plan) {
  const cpu::Conv2dDescription d = plan.description();
  return {.kernel = d.kernel,
          .explanation = explain(d),
          .fused = true,
          .bound = bound,
          .workspace_bytes = plan.workspace_bytes(),
          .packed_bytes = plan.packed_bytes(),
          .packing_key = packing_key("cpu", plan.packing()),
          .arithmetic = arithmetic,
          .threads = d.threads};
}

template <typename KernelPlan>
class WeightedPlan final : public PlanImpl {
 public:
  WeightedPlan(const WeightedOp& op, const ErrorBound& bound, KernelPlan plan, const Arithmetic& arithmetic = {})
      : PlanImpl(details_of(bound, arithmetic, plan)), strides_(op.strides), plan_(std::move(plan)) {}

  void pack(const void* weights, void* packed) override { plan_.pack(weights, strides_, packed); }
  void run(const RunArguments& a) override { plan_.run(a.inputs[0], a.weights, a.bias, a.output); }

 private:
  WeightStrides strides_;
  KernelPlan plan_;
};

/// The share of |x||w| that is lost if only 3 of the 4 products of two bf16 parts are computed.
constexpr double kF16LeftOut = 0x1p-18;

std::string strict_only(const WeightedOp& op) {
  return op.problem.math == Math::strict
             ? ""
             : "math " + std::string(to_string(op.problem.math)) + ": its arithmetic is strict";
}

/// The refusal of a kernel whose arithmetic is strict.
template <std::string (*refusal)(const Conv2dProblem&, const cpu::Target&)>
std::string strict(const WeightedOp& op, const cpu::Target& target) {
  std::string reason = refusal(op.problem, target);
  return reason.empty() ? strict_only(op) : reason;
}

std::string refuse_direct(const WeightedOp& op, const cpu::Target& target) {
  const Conv2dProblem& p = op.problem;
  const bool one_each = cpu::is_depthwise(p) || (cpu::has_single_channel_groups(p) && p.pool.none());
  // `depthwise` refuses the problem, since its rows have more pieces than the tables hold.
  const bool left_over = p.nhwc && p.pool.none() && !cpu::depthwise_refusal(p, target).empty();
  if (one_each && !left_over) {
    return "one input channel in each of several groups: the depthwise kernels take these";
  }
  return strict_only(op);
}

std::string missing_narrow_groups(const cpu::Target& target) {
  const bool one_lane = target.supported && cpu::narrow_groups_kernels(target).lanes == 1;
  return one_lane ? "target " + std::string(target.name) + ": a vector has one lane, so it holds no groups" : "";
}

std::string refuse_narrow_groups(const WeightedOp& op, const cpu::Target& target) {
  if (cpu::is_depthwise(op.problem)) return "one input and one output channel: the depthwise kernels take these";
  return strict<cpu::narrow_groups_refusal>(op, target);
}

template <typename KernelPlan>
std::unique_ptr<PlanImpl> make_f32_plan(const WeightedOp& op, const CpuPlace& place) {
  return std::make_unique<WeightedPlan<KernelPlan>>(op, f32_bound(op),
                                                    KernelPlan(op.problem, place.target, place.threads));
}

/// An f16 value is exactly the sum of two bf16 parts. The product of the two lesser parts is left out if its error is
/// below the bound of f32 accumulation; the bound then at most doubles.
int f16_products_of(const WeightedOp& op) { return f32_bound(op).accumulation >= kF16LeftOut ? 3 : 4; }

/// The number of products of bf16 parts for each term; 0 for ops that bf16 units do not compute.
int products_of(const WeightedOp& op) {
  if (op.problem.dtype == DType::bf16) return op.problem.math == Math::strict ? 1 : 0;
  if (op.problem.dtype == DType::f16) return op.problem.math == Math::strict ? f16_products_of(op) : 0;
  return op.problem.math == Math::split3 ? 3 : op.problem.math == Math::split6 ? 6 : 0;
}

std::string refuse_bf16(const WeightedOp& op, const cpu::Bf16Unit& unit) {
  const int products = products_of(op);
  if (products == 0) {
    return std::string(name_of(op.problem.dtype)) + " with math " + std::string(to_string(op.problem.math)) +
           ": it multiplies bf16, f16, or f32 as split3 or split6";
  }
  if (unit.tile(products) == nullptr) {
    return "math " + std::string(to_string(op.problem.math)) + ": " + std::to_string(products) +
           " bf16 products a term are slower on it than one in f32";
  }
  return cpu::bf16_refusal(op.problem, products, unit);
}

/// The bound of sums of bf16 products, on AMX and on AVX512-BF16. With M = sum |x||w| + |bias| over n terms:
///   Sums. A product of two bf16 is exact in f32 and each of a unit's additions rounds to nearest, in an order of its
///     own: the bound of f32 accumulation, which holds for every order, over n·products terms.
///   Subnormals. The units take subnormal operands and results as zero. A term loses at most 2^-126 times its other
///     operand, a sum 2^-126: together n·2^-101 for operands up to 2^24.
///   f16. x = hi + lo exactly, |lo| <= 2^-9 |x|: bf16 holds 8 of its 11 bits and a sign in each part, and its exponents
///     reach below f16's subnormals. With 3 products, lo·lo is left out, at most 2^-18 |x||w|.
///   split3. x = hi + mid + e, |mid| <= 2^-8 |x|, |e| <= 2^-16 |x|, and w likewise. Left out are mid·mid, e·w and x·e,
///     each at most 2^-16 |x||w|: 3·2^-16 M, and 2^-7 of that for terms of higher order.
///   split6. x = hi + mid + lo exactly, |lo| <= 2^-16 |x|: three times 8 bits hold the 24 of f32. Left out are
///     mid·lo and lo·mid, each at most 2^-24 |x||w|, and lo·lo: 2·2^-24 M, and 2^-7 of that.
/// Parts of values beyond bf16's greatest, 2^128 - 2^119, are infinite, and infinities have no parts: results are NaN.
/// f16's own instructions on AVX512-FP16 add in f16, which no bound of f32 accumulation allows.
ErrorBound bf16_bound(const WeightedOp& op, int products) {
  const std::int64_t n = terms(op.op);
  ErrorBound bound = f32_accumulation_bound(n * products, op.problem.dtype, op.problem.activation);
  bound.absolute += static_cast<double>(n) * 0x1p-101;
  if (products == 3 && op.problem.dtype == DType::f16) bound.accumulation += kF16LeftOut;
  if (products == 3 && op.problem.dtype == DType::f32) bound.accumulation += 3 * 0x1p-16 * (1 + 0x1p-7);
  if (products == 6) bound.accumulation += 2 * 0x1p-24 * (1 + 0x1p-7);
  return bound;
}

std::unique_ptr<PlanImpl> make_bf16_plan(const WeightedOp& op, const CpuPlace& place, const cpu::Bf16Unit& unit) {
  const int products = products_of(op);
  return std::make_unique<WeightedPlan<cpu::Bf16Conv2dPlan>>(
      op, bf16_bound(op, products), cpu::Bf16Conv2dPlan(op.problem, products, unit, place.target, place.threads),
      Arithmetic{.dtype = "bf16", .products = products});
}

std::string vector_planes_refusal(const Conv2dProblem& p, const cpu::Target& target) {
  return cpu::planes_refusal(p, 0, cpu::planes::vector_unit(target));
}

std::string refuse_planes(const WeightedOp& op, const cpu::Target& target) {
  if (!op.problem.pool.none() && cpu::few_channels_refusal(op.problem, target).empty()) {
    return "a max-pool after a convolution of few channels: few_channels keeps it in registers";
  }
  return strict<vector_planes_refusal>(op, target);
}

double planes_seconds(const WeightedOp& op, const CpuPlace& place) {
  return cpu::planes_seconds(op.problem, 0, cpu::planes::vector_unit(place.target), place.threads);
}

std::string refuse_bf16_planes(const WeightedOp& op, const cpu::planes::TileUnit& unit) {
  const int products = products_of(op);
  if (products == 0) {
    return std::string(name_of(op.problem.dtype)) + " with math " + std::string(to_string(op.problem.math)) +
           ": it multiplies bf16, f16, or f32 as split3 or split6";
  }
  if (!unit.whole_tiles && products > 1) {
    return std::to_string(products) + " bf16 products a term are slower on it than one in f32";
  }
  return cpu::planes_refusal(op.problem, products, unit);
}

std::unique_ptr<PlanImpl> make_bf16_planes_plan(const WeightedOp& op, const CpuPlace& place,
                                                const cpu::planes::TileUnit& unit) {
  const int products = products_of(op);
  return std::make_unique<WeightedPlan<cpu::PlanesPlan>>(
      op, bf16_bound(op, products), cpu::PlanesPlan(op.problem, products, unit, place.target, place.threads),
      Arithmetic{.dtype = "bf16", .products = products});
}

std::string missing_narrow_groups_dot(const cpu::Target& target) {
  return target.name != "avx512" ? "target " + std::string(target.name) + ": its products belong to avx512"
                                 : cpu::missing_narrow_groups_dot();
}

std::string refuse_narrow_groups_dot(const WeightedOp& op, const cpu::Target& target) {
  if (cpu::is_depthwise(op.problem)) return "one input and one output channel: the depthwise kernels take these";
  return strict<cpu::narrow_groups_dot_refusal>(op, target);
}

std::unique_ptr<PlanImpl> make_narrow_groups_dot_plan(const WeightedOp& op, const CpuPlace& place) {
  using Plan = cpu::NarrowGroupsPlan;
  return std::make_unique<WeightedPlan<Plan>>(
      op, bf16_bound(op, 1),
      Plan(op.problem, cpu::narrow_groups_dot_kernels(place.target, op.problem), place.target, place.threads),
      Arithmetic{.dtype = "bf16", .products = 1});
}

std::string missing_few_outputs_dot(const cpu::Target& target) {
  return target.name != "avx512" ? "target " + std::string(target.name) + ": its products belong to avx512"
                                 : cpu::missing_few_outputs_dot();
}

std::unique_ptr<PlanImpl> make_few_outputs_dot_plan(const WeightedOp& op, const CpuPlace& place) {
  using Plan = cpu::FewOutputsPlan;
  return std::make_unique<WeightedPlan<Plan>>(
      op, bf16_bound(op, 1), Plan(op.problem, cpu::few_outputs_dot_kernels(), place.target, place.threads),
      Arithmetic{.dtype = "bf16", .products = 1});
}

/// The units use AVX-512 registers, and the code around them is compiled for avx512.
template <typename Unit>
std::string missing_unit(const cpu::Target& target, const Unit& unit) {
  if (target.name != "avx512") return "target " + std::string(target.name) + ": the unit belongs to avx512";
  return unit.missing;
}

template <const cpu::Bf16Unit& (*unit)()>
constexpr CpuKernels::Kernel bf16_kernel(const char* name) {
  return {name, [](const cpu::Target& target) { return missing_unit(target, unit()); },
          [](const WeightedOp& op, const cpu::Target&) { return refuse_bf16(op, unit()); },
          [](const WeightedOp& op, const CpuPlace& place) { return make_bf16_plan(op, place, unit()); },
          [](const WeightedOp& op, const CpuPlace& place) {
            return cpu::bf16_seconds(op.problem, products_of(op), unit(), place.threads);
          }};
}

template <const cpu::planes::TileUnit& (*unit)()>
constexpr CpuKernels::Kernel bf16_planes_kernel(const char* name) {
  return {name, [](const cpu::Target& target) { return missing_unit(target, unit()); },
          [](const WeightedOp& op, const cpu::Target&) { return refuse_bf16_planes(op, unit()); },
          [](const WeightedOp& op, const CpuPlace& place) { return make_bf16_planes_plan(op, place, unit()); },
          [](const WeightedOp& op, const CpuPlace& place) {
            return cpu::planes_seconds(op.problem, products_of(op), unit(), place.threads);
          }};
}

template <double (*seconds)(const Conv2dProblem&, const cpu::Target&, int)>
double seconds_of(const WeightedOp& op, const CpuPlace& place) {
  return seconds(op.problem, place.target, place.threads);
}

template <typename KernelPlan>
constexpr CpuKernels::Kernel f32_kernel(const char* name, std::string (*refusal)(const WeightedOp&, const cpu::Target&),
                                        double (*seconds)(const WeightedOp&, const CpuPlace&) = nullptr) {
  return {name, nothing_missing<cpu::Target>, refusal, make_f32_plan<KernelPlan>, seconds};
}

constexpr CpuKernels::Kernel kKernels[] = {
    {"cropped", nothing_missing<cpu::Target>, refuse_cropped, make_cropped_plan, cropped_seconds},
    bf16_kernel<cpu::amx_unit>("amx"),
    bf16_kernel<cpu::bf16_dot_unit>("bf16_dot"),
    f32_kernel<cpu::DepthwisePlan>("depthwise", strict<cpu::depthwise_refusal>, seconds_of<cpu::depthwise_seconds>),
    f32_kernel<cpu::DepthwisePlanesPlan>("depthwise_planes", strict<cpu::depthwise_planes_refusal>,
                                         seconds_of<cpu::depthwise_planes_seconds>),
    f32_kernel<cpu::DepthwiseStagedPlan>("depthwise_staged", strict<cpu::depthwise_staged_refusal>),
    f32_kernel<cpu::FewChannelsPlan>("few_channels", strict<cpu::few_channels_refusal>,
                                     seconds_of<cpu::few_channels_seconds>),
    {"few_outputs_bf16_dot", missing_few_outputs_dot, strict<cpu::few_outputs_dot_refusal>, make_few_outputs_dot_plan,
     seconds_of<cpu::few_outputs_dot_seconds>},
    f32_kernel<cpu::FewOutputsPlan>("few_outputs", strict<cpu::few_outputs_refusal>,
                                    seconds_of<cpu::few_outputs_seconds>),
    {"folded", nothing_missing<cpu::Target>, refuse_folded, make_folded_plan, folded_seconds},
    {"narrow_groups_bf16_dot", missing_narrow_groups_dot, refuse_narrow_groups_dot, make_narrow_groups_dot_plan,
     seconds_of<cpu::narrow_groups_dot_seconds>},
    {"narrow_groups", missing_narrow_groups, refuse_narrow_groups, make_f32_plan<cpu::NarrowGroupsPlan>,
     seconds_of<cpu::narrow_groups_seconds>},
    f32_kernel<cpu::PointwisePlan>("pointwise", strict<cpu::pointwise_refusal>, seconds_of<cpu::pointwise_seconds>),
    bf16_planes_kernel<cpu::planes::amx_unit>("planes_amx"),
    bf16_planes_kernel<cpu::planes::dot_unit>("planes_bf16_dot"),
    {"planes", nothing_missing<cpu::Target>, refuse_planes, make_f32_plan<cpu::PlanesPlan>, planes_seconds},
    {"reordered", nothing_missing<cpu::Target>, refuse_reordered, make_reordered_plan, reordered_seconds},
    {"widened", nothing_missing<cpu::Target>, refuse_widened, make_widened_plan, widened_seconds},
    f32_kernel<cpu::Conv2dPlan>("direct", refuse_direct, seconds_of<cpu::conv2d_seconds>),
};

}  // namespace

std::span<const CpuKernels::Kernel> weighted_kernels() { return kKernels; }

FastestKernel fastest_kernel(const WeightedOp& op, const CpuPlace& place) {
  FastestKernel best{nullptr, std::numeric_limits<double>::infinity()};
  for (const CpuKernels::Kernel& kernel : kKernels) {
    if (kernel.seconds == nullptr || !kernel.missing(place.target).empty()) continue;
    if (!kernel.refusal(op, place.target).empty()) continue;
    const double seconds = kernel.seconds(op, place);
    if (seconds < best.seconds) best = {&kernel, seconds};
  }
  return best;
}

std::string without_estimate(const Conv2dProblem& problem) {
  return problem.pool.none() ? "no kernel has an estimated time"
                             : "a max-pool: no kernel that fuses it has an estimated time";
}

void name_around(PlanDetails& inner, const std::string& kernel) {
  const std::string words = "kernel " + inner.kernel;
  const std::size_t at = inner.explanation.find(words);
  if (at != std::string::npos)
    inner.explanation.replace(at, words.size(), "kernel " + kernel + " with " + inner.kernel);
  inner.kernel = kernel;
}

}  // namespace gable
