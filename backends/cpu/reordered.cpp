// See reordered.h.
#include "backends/cpu/reordered.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "backends/cpu/fastest.h"
#include "cpu/bf16/unit.h"
#include "cpu/common/aligned.h"
#include "cpu/common/cache.h"
#include "cpu/common/estimate.h"
#include "cpu/common/tiling.h"
#include "cpu/ops/transpose.h"
#include "cpu/planes/planes.h"

namespace gable {
namespace {

/// The number of images in one pass, a divisor of n: so many that the reordered tensors fit half of the threads' L2.
/// All images, if the weights exceed half of L2, since every pass reads them, or if the last level keeps all tensors of
/// several threads.
std::int64_t reordered_images(const Conv2dProblem& p, int threads) {
  const std::int64_t half = cpu::l2_bytes() / 2;
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  if (p.k * p.group_c() * p.r * p.s * element > half) return p.n;
  const std::int64_t image = (p.x_elements() + p.y_elements()) / p.n * element;
  if (threads > 1 && p.n * image <= cpu::last_level_bytes() / 4) return p.n;
  std::int64_t images = std::clamp<std::int64_t>(half * threads / image, 1, p.n);
  while (p.n % images != 0) --images;
  return images;
}

/// The op of one pass, on images of NHWC.
WeightedOp in_nhwc(const WeightedOp& op, int threads) {
  WeightedOp inner = op;
  inner.problem.nhwc = true;
  inner.problem.n = reordered_images(op.problem, threads);
  return inner;
}

std::size_t tensor_floats(std::int64_t elements, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(type);
  return cpu::line_floats(static_cast<std::int64_t>((bytes + sizeof(float) - 1) / sizeof(float)));
}

PlanDetails details_of(const Conv2dProblem& pass, PlanDetails inner, std::size_t workspace_floats) {
  name_around(inner, "reordered");
  inner.explanation += "; input reordered from nchw (" + std::to_string(pass.c) + " channels) and output to it, " +
                       std::to_string(pass.n) + (pass.n == 1 ? " image" : " images") + " at a time";
  inner.workspace_bytes += workspace_floats * sizeof(float);
  return inner;
}

class ReorderedPlan final : public PlanImpl {
 public:
  ReorderedPlan(std::int64_t images, const Conv2dProblem& pass, std::unique_ptr<PlanImpl> inner, const CpuPlace& place)
      : PlanImpl(details_of(pass, inner->details(), floats(pass))),
        images_(images),
        pass_(pass),
        inner_(std::move(inner)),
        target_(&place.target),
        threads_(place.threads),
        workspace_(floats(pass)) {}

  void pack(const void* weights, void* packed) override { inner_->pack(weights, packed); }

  void run(const RunArguments& arguments) override {
    const Conv2dProblem& p = pass_;
    const auto bytes = static_cast<int>(size_of(p.dtype));
    const auto* from = static_cast<const char*>(arguments.inputs[0]);
    auto* to = static_cast<char*>(arguments.output);
    float* const x = workspace_.data();
    float* const y = x + tensor_floats(p.x_elements(), p.dtype);
    RunArguments inner = arguments;
    inner.inputs[0] = x;
    inner.output = y;
    for (std::int64_t image = 0; image < images_; image += p.n) {
      cpu::nchw_to_nhwc(from, x, p.n, p.c, p.h, p.w, bytes, *target_, threads_);
      inner_->run(inner);
      cpu::nhwc_to_nchw(y, to, p.n, p.k, p.ho, p.wo, bytes, *target_, threads_);
      from += p.x_elements() * bytes;
      to += p.y_elements() * bytes;
    }
  }

 private:
  static std::size_t floats(const Conv2dProblem& p) {
    return tensor_floats(p.x_elements(), p.dtype) + tensor_floats(p.y_elements(), p.dtype);
  }

  std::int64_t images_;
  Conv2dProblem pass_;
  std::unique_ptr<PlanImpl> inner_;
  const cpu::Target* target_;
  int threads_;
  cpu::AlignedFloats workspace_;
};

/// Costs of reordering, in seconds: how many times its estimate the kernel between the reorders takes, an element, a
/// byte that exceeds L2, the start of both reorders.
struct ReorderCosts {
  double clock, element, far_byte, start;
};

/// NHWC kernels' estimates assume a lower clock than NCHW kernels' do; a Xeon with AMX runs below both. Its costs are
/// fitted to one thread, together with those of planes.
ReorderCosts reorder_costs(const Conv2dProblem& p, const CpuPlace& place) {
  const bool half = p.dtype != DType::f32, depthwise = cpu::is_depthwise(p);
  if (cpu::amx_unit().missing.empty()) {
    if (depthwise) return {1.3, half ? 0.22e-9 : 0.28e-9, 0.12e-9, 200e-9};
    if (!half) return {1.4, 0.35e-9, 0.055e-9, 50e-9};
    return p.dtype == DType::bf16 ? ReorderCosts{1.43, 0.2e-9, 0.12e-9, 200e-9}
                                  : ReorderCosts{1, 0.3e-9, 0.12e-9, 270e-9};
  }
  const bool whole = cpu::whole_vector_share(cpu::planes::vector_unit(place.target).positions) < 1;
  if (whole && place.threads == 1) {  // fitted together with the kernels of planes
    const double clock = cpu::has_single_channel_groups(p) ? 0.64 : 0.78;
    if (!depthwise) return {clock, half ? 0.068e-9 : 0.1e-9, 0.03e-9, 130e-9};
    return half ? ReorderCosts{1.145, 0.08e-9, 0.017e-9, 140e-9} : ReorderCosts{1.25, 0.12e-9, 0.0185e-9, 150e-9};
  }
  // Pairs of bf16 without groups are estimated lower on cores that do not halve vectors.
  const bool pairs = p.dtype == DType::bf16 && p.groups == 1 && whole;
  return {pairs ? 1.07 : 0.82, half && depthwise ? 0.08e-9 : 0.14e-9, 0.04e-9, 160e-9};
}

/// Several threads of a Xeon with AMX. Between the reorders and the kernel they exchange the data between their caches.
/// Fitted to twelve threads.
double exchanged_seconds(const Conv2dProblem& p, double inner, const CpuPlace& place) {
  constexpr double kSlower = 1.35, kExchanged = 0.08e-9, kRegion = 4e-6;  // of the kernel, an element, a reorder
  const ReorderCosts cost = reorder_costs(p, place);
  double seconds = kSlower * cost.clock * inner;
  // Both reorders are counted as shared by rows.
  const auto add = [&](std::int64_t units, std::int64_t elements) {
    const double share = cost.element / static_cast<double>(std::min<std::int64_t>(place.threads, units));
    seconds += static_cast<double>(elements) * (share + kExchanged) + (units > 1 ? kRegion : 0);
  };
  add(cpu::transpose_units(p.n, p.c, p.h * p.w), p.x_elements());
  add(cpu::transpose_units(p.n, p.ho * p.wo, p.k), p.y_elements());
  return seconds;
}

}  // namespace

std::string refuse_reordered(const WeightedOp& op, const cpu::Target& target) {
  if (op.problem.nhwc) return "layout nhwc: it reorders nchw";
  if (!op.problem.pool.none()) return "it fuses no max-pool";
  if (fastest_kernel(in_nhwc(op, 1), {target, 1}).kernel == nullptr) return "no kernel of nhwc has an estimated time";
  return "";
}

double reordered_seconds(const WeightedOp& op, const CpuPlace& place) {
  const Conv2dProblem& p = op.problem;
  const WeightedOp pass = in_nhwc(op, place.threads);
  const double inner = fastest_kernel(pass, place).seconds * static_cast<double>(p.n / pass.problem.n);
  const auto elements = static_cast<double>(p.x_elements() + p.y_elements());
  const double bytes = elements * static_cast<double>(size_of(p.dtype));
  if (place.threads > 1 && cpu::amx_unit().missing.empty() && !cpu::is_depthwise(p))
    return exchanged_seconds(p, inner, place);
  const ReorderCosts cost = reorder_costs(p, place);
  const double far = cost.far_byte * std::max(0.0, bytes - static_cast<double>(cpu::l2_bytes()));
  const double seconds = cost.clock * inner + (elements * cost.element + far) / place.threads + cost.start;
  if (!cpu::is_depthwise(p)) return seconds;
  // Depthwise layers are mostly reorders. Their times are fitted to one thread of a core that does not halve vectors.
  // On several threads the cores exchange the reordered data between their caches: layers that are faster on one thread
  // then take up to 1.8 times as long as depthwise_planes.
  if (place.threads > 1 || (cpu::whole_vector_share(16) == 1 && !cpu::has_amx_beside(16))) return cpu::kNoEstimate;
  // Reordered copies that do not fit the last level beside the tensors come from memory.
  constexpr double kByteOfMemory = 0.5e-9;
  // In several passes L2 keeps the reordered copies, which are a larger part of the time in 16 bits.
  constexpr double kPassesOf16Bits = 0.9;
  const double passes = pass.problem.n < p.n && p.dtype != DType::f32 ? kPassesOf16Bits : 1;
  return passes * seconds + kByteOfMemory * std::max(0.0, 2 * bytes - static_cast<double>(cpu::l3_bytes()));
}

std::unique_ptr<PlanImpl> make_reordered_plan(const WeightedOp& op, const CpuPlace& place) {
  const WeightedOp inner = in_nhwc(op, place.threads);
  return std::make_unique<ReorderedPlan>(op.problem.n, inner.problem,
                                         fastest_kernel(inner, place).kernel->make(inner, place), place);
}

}  // namespace gable
