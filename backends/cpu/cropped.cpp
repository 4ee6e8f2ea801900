// See cropped.h.
#include "backends/cpu/cropped.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "backends/cpu/fastest.h"

namespace gable {
namespace {

/// The taps [begin, end) of a window's rows or columns.
struct KeptTaps {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// One axis of a convolution.
struct Axis {
  std::int64_t size, outputs, taps, stride, pad, dilation;
};

/// Without the first and last taps that no output reads the image with; at least one is left, and no padding becomes
/// negative.
KeptTaps kept_taps(const Axis& axis) {
  const std::int64_t before_image = axis.pad - (axis.outputs - 1) * axis.stride;  // of the last output's first tap
  const std::int64_t before = before_image <= 0 ? 0 : ceil_div(before_image, axis.dilation);
  const std::int64_t begin = std::min({before, axis.pad / axis.dilation, axis.taps - 1});
  return {begin, std::clamp(ceil_div(axis.size + axis.pad, axis.dilation), begin + 1, axis.taps)};
}

KeptTaps kept_rows(const Conv2dProblem& p) { return kept_taps({p.h, p.ho, p.r, p.stride_h, p.pad_top, p.dilation_h}); }
KeptTaps kept_columns(const Conv2dProblem& p) {
  return kept_taps({p.w, p.wo, p.s, p.stride_w, p.pad_left, p.dilation_w});
}

/// The op by the kept taps alone; its weights begin with the first of them, and their strides are the op's.
WeightedOp cropped(const WeightedOp& op) {
  WeightedOp inner = op;
  inner.problem = without_unread_taps(op.problem);
  return inner;
}

std::int64_t first_weight(const WeightedOp& op) {
  return kept_rows(op.problem).begin * op.strides.row + kept_columns(op.problem).begin * op.strides.column;
}

std::string text_of(const KeptTaps& kept) { return std::to_string(kept.begin) + " to " + std::to_string(kept.end - 1); }

/// Plans that keep other taps, or taps of another window, pack other weights.
PlanDetails details_of(const WeightedOp& op, PlanDetails inner) {
  const Conv2dProblem& p = op.problem;
  name_around(inner, "cropped");
  inner.explanation +=
      "; rows " + text_of(kept_rows(p)) + " and columns " + text_of(kept_columns(p)) + " of a window read the image";
  inner.packing_key = packing_key("cpu cropped " + std::to_string(p.r) + "x" + std::to_string(p.s) + " from " +
                                  std::to_string(first_weight(op)) + " " + std::to_string(inner.packing_key));
  return inner;
}

class CroppedPlan final : public PlanImpl {
 public:
  CroppedPlan(const WeightedOp& op, std::unique_ptr<PlanImpl> inner)
      : PlanImpl(details_of(op, inner->details())),
        first_byte_(static_cast<std::size_t>(first_weight(op)) * size_of(op.problem.dtype)),
        inner_(std::move(inner)) {}

  void pack(const void* weights, void* packed) override {
    inner_->pack(static_cast<const std::byte*>(weights) + first_byte_, packed);
  }
  void run(const RunArguments& arguments) override { inner_->run(arguments); }

 private:
  std::size_t first_byte_;
  std::unique_ptr<PlanImpl> inner_;
};

}  // namespace

Conv2dProblem without_unread_taps(const Conv2dProblem& problem) {
  Conv2dProblem p = problem;
  const KeptTaps rows = kept_rows(problem), columns = kept_columns(problem);
  p.r = rows.count();
  p.s = columns.count();
  p.pad_top -= rows.begin * p.dilation_h;
  p.pad_left -= columns.begin * p.dilation_w;
  return p;
}

std::string refuse_cropped(const WeightedOp& op, const cpu::Target& target) {
  const Conv2dProblem& p = op.problem;
  if (kept_rows(p).count() == p.r && kept_columns(p).count() == p.s)
    return "some output reads the image with the first and last row and column of its window";
  if (fastest_kernel(cropped(op), {target, 1}).kernel == nullptr) return without_estimate(p);
  return "";
}

double cropped_seconds(const WeightedOp& op, const CpuPlace& place) {
  return fastest_kernel(cropped(op), place).seconds;
}

std::unique_ptr<PlanImpl> make_cropped_plan(const WeightedOp& op, const CpuPlace& place) {
  const WeightedOp inner = cropped(op);
  return std::make_unique<CroppedPlan>(op, fastest_kernel(inner, place).kernel->make(inner, place));
}

}  // namespace gable
