// See reordered.h.
#include "backends/cpu/reordered.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "backends/cpu/fastest.h"
#include "cpu/common/aligned.h"
#include "cpu/common/cache.h"
#include "cpu/common/core.h"
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

/// The least number of groups whose channels are whole cache lines of a pixel, in input and output.
std::int64_t groups_of_lines(const Conv2dProblem& p) {
  const auto line = static_cast<std::int64_t>(64 / size_of(p.dtype));
  return std::lcm(line / std::gcd(line, p.group_c()), line / std::gcd(line, p.k / p.groups));
}

/// The groups of one pass: those of an image whose reordered tensors stay in a part of L2, in whole cache lines. All
/// groups, if several threads share them.
std::int64_t reordered_groups(const Conv2dProblem& p, int threads) {
  const std::int64_t part = cpu::l2_bytes() / 8;
  const std::int64_t step = groups_of_lines(p);
  if (threads > 1 || p.groups <= step) return p.groups;
  const std::int64_t group =
      (p.x_elements() + p.y_elements()) / p.n / p.groups * static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t steps = std::max<std::int64_t>(1, part / (group * step));
  return std::min(p.groups, cpu::even_part(ceil_div(p.groups, step), steps) * step);
}

Conv2dProblem with_groups(Conv2dProblem p, std::int64_t groups) {
  p.c = groups * p.group_c();
  p.k = groups * (p.k / p.groups);
  p.groups = groups;
  return p;
}

/// The op of one pass, on images of NHWC: some groups of an image, or some images.
WeightedOp in_nhwc(const WeightedOp& op, int threads) {
  WeightedOp inner = op;
  inner.problem.nhwc = true;
  const std::int64_t groups = reordered_groups(op.problem, threads);
  if (groups < op.problem.groups) {
    inner.problem = with_groups(inner.problem, groups);
    inner.problem.n = 1;
  } else {
    inner.problem.n = reordered_images(op.problem, threads);
  }
  return inner;
}

std::size_t tensor_floats(std::int64_t elements, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(type);
  return cpu::line_floats(static_cast<std::int64_t>((bytes + sizeof(float) - 1) / sizeof(float)));
}

PlanDetails details_of(const Conv2dProblem& pass, PlanDetails inner, std::size_t workspace_floats) {
  name_around(inner, "reordered");
  inner.explanation += "; input reordered from nchw and output to it, " + std::to_string(pass.c) + " channels of " +
                       std::to_string(pass.n) + (pass.n == 1 ? " image" : " images") + " at a time";
  inner.workspace_bytes += workspace_floats * sizeof(float);
  return inner;
}

/// One pass: its problem and the plan between its reorders.
struct Pass {
  Conv2dProblem problem;
  std::unique_ptr<PlanImpl> plan;

  std::size_t floats() const {
    return tensor_floats(problem.x_elements(), problem.dtype) + tensor_floats(problem.y_elements(), problem.dtype);
  }
};

/// All groups of some images at a time.
class ReorderedPlan final : public PlanImpl {
 public:
  ReorderedPlan(std::int64_t images, Pass pass, const CpuPlace& place)
      : PlanImpl(details_of(pass.problem, pass.plan->details(), pass.floats())),
        images_(images),
        pass_(std::move(pass)),
        target_(&place.target),
        threads_(place.threads),
        workspace_(pass_.floats()) {}

  void pack(const void* weights, void* packed) override { pass_.plan->pack(weights, packed); }

  void run(const RunArguments& arguments) override {
    const Conv2dProblem& p = pass_.problem;
    const auto bytes = static_cast<int>(size_of(p.dtype));
    const auto* from = static_cast<const char*>(arguments.inputs[0]);
    auto* to = static_cast<char*>(arguments.output);
    float* const x = workspace_.data();
    float* const y = x + tensor_floats(p.x_elements(), p.dtype);
    RunArguments inner = arguments;
    inner.inputs[0] = x;
    inner.output = y;
    for (std::int64_t image = 0; image < images_; image += p.n) {
      cpu::nchw_to_nhwc({p.n, p.c, p.h, p.w, bytes}, from, x, *target_, threads_);
      pass_.plan->run(inner);
      cpu::nhwc_to_nchw({p.n, p.k, p.ho, p.wo, bytes}, y, to, *target_, threads_);
      from += p.x_elements() * bytes;
      to += p.y_elements() * bytes;
    }
  }

 private:
  std::int64_t images_;
  Pass pass_;
  const cpu::Target* target_;
  int threads_;
  cpu::AlignedFloats workspace_;
};

/// Some groups of one image at a time, on one thread. The last pass may have fewer groups.
class ReorderedGroupsPlan final : public PlanImpl {
 public:
  ReorderedGroupsPlan(const WeightedOp& op, Pass pass, Pass last, const CpuPlace& place)
      : PlanImpl(details_of_groups(op.problem, pass, last)),
        problem_(op.problem),
        group_weights_(op.problem.k / op.problem.groups * op.strides.out),
        pass_(std::move(pass)),
        last_(std::move(last)),
        target_(&place.target),
        workspace_(std::max(pass_.floats(), last_.plan == nullptr ? 0 : last_.floats())) {}

  void pack(const void* weights, void* packed) override {
    const auto* from = static_cast<const char*>(weights);
    auto* to = static_cast<char*>(packed);
    for (std::int64_t first = 0; first < problem_.groups; first += pass_.problem.groups) {
      PlanImpl& plan = *pass_from(first).plan;
      plan.pack(from + first * group_weights_ * static_cast<std::int64_t>(size_of(problem_.dtype)), to);
      to += packed_bytes(plan);
    }
  }

  void run(const RunArguments& arguments) override {
    const auto bytes = static_cast<std::int64_t>(size_of(problem_.dtype));
    const auto* from = static_cast<const char*>(arguments.inputs[0]);
    auto* to = static_cast<char*>(arguments.output);
    for (std::int64_t image = 0; image < problem_.n; ++image) {
      RunArguments inner = arguments;
      for (std::int64_t first = 0; first < problem_.groups; first += pass_.problem.groups) {
        Pass& pass = pass_from(first);
        run_pass(pass, from, to, inner);
        from += pass.problem.x_elements() * bytes;
        to += pass.problem.y_elements() * bytes;
        inner.weights = static_cast<const char*>(inner.weights) + packed_bytes(*pass.plan);
        if (inner.bias != nullptr) inner.bias += pass.problem.k;
      }
    }
  }

 private:
  /// Rounded up, so that weights of every pass begin at a cache line.
  static std::size_t packed_bytes(const PlanImpl& plan) { return (plan.details().packed_bytes + 63) / 64 * 64; }

  static PlanDetails details_of_groups(const Conv2dProblem& p, const Pass& pass, const Pass& last) {
    PlanDetails details = details_of(pass.problem, pass.plan->details(), pass.floats());
    const auto whole = static_cast<std::size_t>(p.groups / pass.problem.groups);
    std::string key =
        "cpu reordered groups " + std::to_string(p.groups) + " of " + std::to_string(pass.plan->details().packing_key);
    details.packed_bytes = whole * packed_bytes(*pass.plan);
    if (last.plan != nullptr) {
      const PlanDetails& left = last.plan->details();
      details.packed_bytes += packed_bytes(*last.plan);
      details.workspace_bytes += left.workspace_bytes;
      details.bound = {std::max(details.bound.accumulation, left.bound.accumulation),
                       std::max(details.bound.rounding, left.bound.rounding),
                       std::max(details.bound.absolute, left.bound.absolute)};
      key += " and " + std::to_string(last.plan->details().packing_key);
    }
    details.packing_key = packing_key(key);
    return details;
  }

  Pass& pass_from(std::int64_t first) { return first + pass_.problem.groups <= problem_.groups ? pass_ : last_; }

  void run_pass(Pass& pass, const char* from, char* to, RunArguments& inner) {
    const Conv2dProblem& p = pass.problem;
    const auto bytes = static_cast<int>(size_of(p.dtype));
    float* const x = workspace_.data();
    float* const y = x + tensor_floats(p.x_elements(), p.dtype);
    inner.inputs[0] = x;
    inner.output = y;
    cpu::nchw_to_nhwc({1, p.c, p.h, p.w, bytes}, from, x, *target_, 1);
    pass.plan->run(inner);
    cpu::nhwc_to_nchw({1, p.k, p.ho, p.wo, bytes}, y, to, *target_, 1);
  }

  Conv2dProblem problem_;
  std::int64_t group_weights_;  // elements
  Pass pass_, last_;            // last_ has no plan if all passes have as many groups
  const cpu::Target* target_;
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
  if (cpu::core_kind() == cpu::CoreKind::amx) {
    if (depthwise) return {1.3, half ? 0.22e-9 : 0.28e-9, 0.12e-9, 200e-9};
    if (!half) return {1.4, 0.35e-9, 0.055e-9, 50e-9};
    return p.dtype == DType::bf16 ? ReorderCosts{1.43, 0.2e-9, 0.12e-9, 200e-9}
                                  : ReorderCosts{1, 0.3e-9, 0.12e-9, 270e-9};
  }
  const bool whole = cpu::core_kind(cpu::planes::vector_unit(place.target).positions) == cpu::CoreKind::whole_512;
  if (whole && place.threads == 1) {  // fitted together with the kernels of planes
    // Groups are mostly computed in passes whose reordered tensors stay in L2.
    if (depthwise)
      return half ? ReorderCosts{0.89, 0.0615e-9, 0.006e-9, 68e-9} : ReorderCosts{0.88, 0.092e-9, 0.005e-9, 30e-9};
    if (cpu::has_single_channel_groups(p)) return {0.57, half ? 0.06e-9 : 0.1e-9, 0.01e-9, 130e-9};
    // `pointwise` in groups is estimated nearer to its time than `direct` is.
    const double of_groups = !half && p.r * p.s == 1 ? 0.85 : 0.7;
    if (p.groups > 1) return {of_groups, half ? 0.045e-9 : 0.085e-9, 0.01e-9, 130e-9};
    return {0.78, half ? 0.06e-9 : 0.1e-9, 0.03e-9, 130e-9};
  }
  // Depthwise on cores that halve vectors: fitted beside depthwise_planes, on one thread.
  if (depthwise && cpu::core_kind() == cpu::CoreKind::halved_512)
    return half ? ReorderCosts{0.82, 0.08e-9, 0.01e-9, 160e-9} : ReorderCosts{0.75, 0.12e-9, 0.01e-9, 160e-9};
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
  const double passes = static_cast<double>(p.n) / static_cast<double>(pass.problem.n) * static_cast<double>(p.groups) /
                        static_cast<double>(pass.problem.groups);
  const double inner = fastest_kernel(pass, place).seconds * passes;
  const auto elements = static_cast<double>(p.x_elements() + p.y_elements());
  const double bytes = elements * static_cast<double>(size_of(p.dtype));
  if (place.threads > 1 && cpu::core_kind() == cpu::CoreKind::amx && !cpu::is_depthwise(p))
    return exchanged_seconds(p, inner, place);
  const ReorderCosts cost = reorder_costs(p, place);
  const double far = cost.far_byte * std::max(0.0, bytes - static_cast<double>(cpu::l2_bytes()));
  const double seconds = cost.clock * inner + (elements * cost.element + far) / place.threads + cost.start;
  if (!cpu::is_depthwise(p)) return seconds;
  // Depthwise layers are mostly reorders. Their times are fitted to one thread of a core that does not halve vectors.
  // On several threads the cores exchange the reordered data between their caches: layers that are faster on one thread
  // then take up to 1.8 times as long as depthwise_planes.
  if (place.threads > 1) return cpu::kNoEstimate;
  if (pass.problem.groups < p.groups) return seconds;
  // Reordered copies that do not fit the last level beside the tensors come from memory.
  constexpr double kByteOfMemory = 0.5e-9;
  return seconds + kByteOfMemory * std::max(0.0, 2 * bytes - static_cast<double>(cpu::l3_bytes()));
}

std::unique_ptr<PlanImpl> make_reordered_plan(const WeightedOp& op, const CpuPlace& place) {
  WeightedOp inner = in_nhwc(op, place.threads);
  const auto pass_of = [&] { return Pass{inner.problem, fastest_kernel(inner, place).kernel->make(inner, place)}; };
  Pass pass = pass_of();
  if (inner.problem.groups == op.problem.groups)
    return std::make_unique<ReorderedPlan>(op.problem.n, std::move(pass), place);
  Pass last{};
  if (const std::int64_t left = op.problem.groups % inner.problem.groups; left != 0) {
    inner.problem = with_groups(inner.problem, left);
    last = pass_of();
  }
  return std::make_unique<ReorderedGroupsPlan>(op, std::move(pass), std::move(last), place);
}

}  // namespace gable
