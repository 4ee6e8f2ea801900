// See folded.h.
#include "backends/cpu/folded.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/cpu/fastest.h"

namespace gable {
namespace {

/// The op with a window's columns as channels.
WeightedOp in_columns(const WeightedOp& op) {
  WeightedOp inner = op;
  Conv2dProblem& p = inner.problem;
  p.c *= p.s;
  p.w /= p.s;
  p.s = p.stride_w = 1;
  inner.strides = dense_strides(p);
  return inner;
}

PlanDetails details_of(const Conv2dProblem& p, PlanDetails inner) {
  name_around(inner, "folded");
  inner.explanation +=
      "; " + std::to_string(p.s) + " columns of a window as " + std::to_string(p.s * p.c) + " channels";
  inner.packing_key =
      packing_key("cpu folded " + std::to_string(p.s) + " columns " + std::to_string(inner.packing_key));
  return inner;
}

class FoldedPlan final : public PlanImpl {
 public:
  FoldedPlan(const WeightedOp& op, std::unique_ptr<PlanImpl> inner)
      : PlanImpl(details_of(op.problem, inner->details())),
        problem_(op.problem),
        strides_(op.strides),
        inner_(std::move(inner)) {}

  /// Channel c of column s becomes channel s*C + c.
  void pack(const void* weights, void* packed) override {
    const Conv2dProblem& p = problem_;
    const std::size_t bytes = size_of(p.dtype);
    std::vector<std::byte> folded(static_cast<std::size_t>(p.k * p.s * p.c * p.r) * bytes);
    std::byte* to = folded.data();
    for (std::int64_t k = 0; k < p.k; ++k) {
      for (std::int64_t s = 0; s < p.s; ++s) {
        for (std::int64_t c = 0; c < p.c; ++c) {
          const std::int64_t first = k * strides_.out + c * strides_.in + s * strides_.column;
          for (std::int64_t r = 0; r < p.r; ++r, to += bytes) {
            const auto at = static_cast<std::size_t>(first + r * strides_.row);
            std::memcpy(to, static_cast<const std::byte*>(weights) + at * bytes, bytes);
          }
        }
      }
    }
    inner_->pack(folded.data(), packed);
  }

  void run(const RunArguments& arguments) override { inner_->run(arguments); }

 private:
  Conv2dProblem problem_;
  WeightStrides strides_;
  std::unique_ptr<PlanImpl> inner_;
};

}  // namespace

std::string refuse_folded(const WeightedOp& op, const cpu::Target& target) {
  const Conv2dProblem& p = op.problem;
  if (!p.nhwc) return "layout nchw: it takes nhwc";
  if (p.groups > 1) return "groups: a pixel's channels of one group are no neighbours of the next pixel's";
  if (p.s == 1 || p.stride_w != p.s || p.dilation_w != 1 || p.pad_left != 0)
    return "windows do not tile a row: it takes strides of a window's width, without padding on the left";
  if (p.w % p.s != 0) return "windows do not fill a row of " + std::to_string(p.w) + " pixels";
  if (p.wo > p.w / p.s) return "padding on the right: a window would read past its row";
  if (fastest_kernel(in_columns(op), {target, 1}).kernel == nullptr) return without_estimate(p);
  return "";
}

double folded_seconds(const WeightedOp& op, const CpuPlace& place) {
  // Kernels that fold columns themselves have about the same time, and estimates are no better than this.
  constexpr double kClearly = 1.05;
  return kClearly * fastest_kernel(in_columns(op), place).seconds;
}

std::unique_ptr<PlanImpl> make_folded_plan(const WeightedOp& op, const CpuPlace& place) {
  const WeightedOp inner = in_columns(op);
  return std::make_unique<FoldedPlan>(op, fastest_kernel(inner, place).kernel->make(inner, place));
}

}  // namespace gable
