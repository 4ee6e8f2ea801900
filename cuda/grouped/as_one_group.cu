// See as_one_group.h.
#include "cuda/grouped/as_one_group.h"

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kAligned = 256;

/// Writes the weights of one group, in the order (K, C, R, S) and with zeros between groups: a thread an element.
template <typename T>
__global__ void spread_groups(Conv2dProblem p, const T* weights, WeightStrides strides, T* spread) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, taps = p.r * p.s;
  if (index >= p.k * p.c * taps) return;
  const std::int64_t tap = index % taps, k = index / taps / p.c;
  const std::int64_t c = index / taps % p.c - k / p.group_k() * p.group_c();
  const bool seen = c >= 0 && c < p.group_c();
  spread[index] = seen
                      ? weights[k * strides.out + c * strides.in + tap / p.s * strides.row + tap % p.s * strides.column]
                      : from_f32<T>(0.0f);
}

std::size_t weight_bytes(const Conv2dProblem& p) {
  return static_cast<std::size_t>(p.k * p.group_c() * p.r * p.s) * size_of(p.dtype);
}

/// pack() allocates nothing, so the weights of one group lie behind the packed ones; run() does not read them.
class PlanAsOneGroup final : public Conv2dPlan {
 public:
  PlanAsOneGroup(const Conv2dProblem& problem, const char* order, std::unique_ptr<Conv2dPlan> kernel)
      : problem_(problem), order_(order), kernel_(std::move(kernel)) {}

  Conv2dDescription description() const override {
    Conv2dDescription d = kernel_->description();
    d.staging += ", " + std::to_string(problem_.groups) + " groups as one, with zeros among the weights";
    return d;
  }
  Packing packing() const override { return packing_of(problem_, order_, kernel_->packing().cut); }
  std::size_t packed_bytes() const override { return spread_at() + weight_bytes(as_one_group(problem_)); }
  std::size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }

  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override {
    note_path(Path::groups_as_one);
    const Conv2dProblem whole = as_one_group(problem_);
    void* const spread = static_cast<unsigned char*>(packed) + spread_at();
    const auto blocks = static_cast<unsigned>(ceil_div(whole.k * whole.c * whole.r * whole.s, kThreads));
    with_type(problem_.dtype, [&](auto zero) {
      using T = decltype(zero);
      spread_groups<T>
          <<<blocks, kThreads, 0, stream>>>(problem_, static_cast<const T*>(weights), strides, static_cast<T*>(spread));
    });
    check_launch("spread_groups");
    kernel_->pack(spread, dense_strides(whole), packed, stream);
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override {
    kernel_->run(x, packed, bias, y, workspace, stream);
  }

 private:
  std::size_t spread_at() const { return (kernel_->packed_bytes() + kAligned - 1) / kAligned * kAligned; }

  const Conv2dProblem problem_;
  const char* const order_;
  const std::unique_ptr<Conv2dPlan> kernel_;
};

}  // namespace

Conv2dProblem as_one_group(const Conv2dProblem& problem) {
  Conv2dProblem whole = problem;
  whole.groups = 1;
  return whole;
}

bool fits_as_one_group(const Conv2dProblem& problem) {
  constexpr std::size_t kMaxBytes = 4 << 20;
  return problem.groups > 1 && weight_bytes(problem) <= kMaxBytes / static_cast<std::size_t>(problem.groups);
}

std::unique_ptr<Conv2dPlan> with_one_group(const Conv2dProblem& problem, const char* order,
                                           std::unique_ptr<Conv2dPlan> kernel) {
  return std::make_unique<PlanAsOneGroup>(problem, order, std::move(kernel));
}

}  // namespace gable::cuda
