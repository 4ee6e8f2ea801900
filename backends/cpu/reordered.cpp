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

namespace gable {
namespace {

/// The op on images of NHWC.
WeightedOp in_nhwc(const WeightedOp& op) {
  WeightedOp inner = op;
  inner.problem.nhwc = true;
  return inner;
}

std::size_t tensor_floats(std::int64_t elements, DType type) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(type);
  return cpu::line_floats(static_cast<std::int64_t>((bytes + sizeof(float) - 1) / sizeof(float)));
}

PlanDetails details_of(const Conv2dProblem& p, PlanDetails inner, std::size_t workspace_floats) {
  inner.kernel = "reordered";
  inner.explanation += "; input reordered from nchw (" + std::to_string(p.c) + " channels) and output to it";
  inner.workspace_bytes += workspace_floats * sizeof(float);
  return inner;
}

class ReorderedPlan final : public PlanImpl {
 public:
  ReorderedPlan(const Conv2dProblem& problem, std::unique_ptr<PlanImpl> inner, const CpuPlace& place)
      : PlanImpl(details_of(problem, inner->details(), floats(problem))),
        problem_(problem),
        inner_(std::move(inner)),
        target_(&place.target),
        threads_(place.threads),
        workspace_(floats(problem)) {}

  void pack(const void* weights, void* packed) override { inner_->pack(weights, packed); }

  void run(const RunArguments& arguments) override {
    const Conv2dProblem& p = problem_;
    const auto bytes = static_cast<int>(size_of(p.dtype));
    float* const x = workspace_.data();
    float* const y = x + tensor_floats(p.x_elements(), p.dtype);
    cpu::nchw_to_nhwc(arguments.inputs[0], x, p.n, p.c, p.h, p.w, bytes, *target_, threads_);
    RunArguments inner = arguments;
    inner.inputs[0] = x;
    inner.output = y;
    inner_->run(inner);
    cpu::nhwc_to_nchw(y, arguments.output, p.n, p.k, p.ho, p.wo, bytes, *target_, threads_);
  }

 private:
  static std::size_t floats(const Conv2dProblem& p) {
    return tensor_floats(p.x_elements(), p.dtype) + tensor_floats(p.y_elements(), p.dtype);
  }

  Conv2dProblem problem_;
  std::unique_ptr<PlanImpl> inner_;
  const cpu::Target* target_;
  int threads_;
  cpu::AlignedFloats workspace_;
};

}  // namespace

std::string refuse_reordered(const WeightedOp& op, const cpu::Target& target) {
  if (op.problem.nhwc) return "layout nhwc: it reorders nchw";
  if (!op.problem.pool.none()) return "it fuses no max-pool";
  if (fastest_kernel(in_nhwc(op), {target, 1}).kernel == nullptr) return "no kernel of nhwc has an estimated time";
  return "";
}

double reordered_seconds(const WeightedOp& op, const CpuPlace& place) {
  const Conv2dProblem& p = op.problem;
  const double inner = fastest_kernel(in_nhwc(op), place).seconds;
  const auto elements = static_cast<double>(p.x_elements() + p.y_elements());
  const double bytes = elements * static_cast<double>(size_of(p.dtype));
  // Seconds for each byte that exceeds L2, and for starting a reorder.
  constexpr double kFarByte = 0.04e-9, kReorder = 80e-9;
  const double far = kFarByte * std::max(0.0, bytes - static_cast<double>(cpu::l2_bytes()));
  // NHWC kernels' estimates assume a lower clock than NCHW kernels' do; a Xeon with AMX runs below both.
  constexpr double kClock = 0.82, kClockOfAmx = 1.2, kClockOfParts = 1.6, kClockBesideAmx = 1.8;
  const bool has_amx = cpu::amx_unit().missing.empty();
  const double clock_of_amx = p.dtype == DType::bf16  ? kClockOfAmx
                              : p.dtype == DType::f16 ? kClockOfParts
                                                      : kClockBesideAmx;
  const double clock = has_amx ? clock_of_amx : kClock;
  constexpr double kElement = 0.14e-9;
  if (!cpu::is_depthwise(p)) return clock * inner + (elements * kElement + far) / place.threads + 2 * kReorder;
  // Depthwise layers are mostly reorders. Their times are fitted to one thread of a core that does not halve vectors.
  // On several threads the cores exchange the reordered data between their caches: layers that are faster on one thread
  // then take up to 1.8 times as long as depthwise_planes.
  if (place.threads > 1 || cpu::whole_vector_share(16) == 1) return cpu::kNoEstimate;
  constexpr double kElementOf16Bits = 0.08e-9, kByteOfMemory = 0.5e-9;
  const double element = p.dtype == DType::f32 ? kElement : kElementOf16Bits;
  // Reordered copies that do not fit the last level beside the tensors come from memory.
  const double memory = kByteOfMemory * std::max(0.0, 2 * bytes - static_cast<double>(cpu::l3_bytes()));
  return clock * inner + elements * element + far + memory + 2 * kReorder;
}

std::unique_ptr<PlanImpl> make_reordered_plan(const WeightedOp& op, const CpuPlace& place) {
  const WeightedOp inner = in_nhwc(op);
  return std::make_unique<ReorderedPlan>(op.problem, fastest_kernel(inner, place).kernel->make(inner, place), place);
}

}  // namespace gable
