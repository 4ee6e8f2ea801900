// See cpu_plans.h.
#include "backends/cpu/cpu_plans.h"

#include <gable/error.h>

#include "backends/problems.h"
#include "cpu/ops/activate.h"
#include "cpu/ops/bilinear.h"
#include "cpu/ops/concat.h"
#include "cpu/ops/elementwise.h"
#include "cpu/ops/multiply.h"
#include "cpu/ops/pool.h"
#include "cpu/ops/softmax.h"
#include "cpu/ops/transpose.h"
#include "cpu/ops/upsample.h"

namespace gable {
namespace {

/// The details of an op without weights, whose kernel has the op's name.
PlanDetails details_of(const Op& op, const CpuPlace& place, std::size_t workspace_bytes = 0) {
  const std::string kernel(name(op));
  const Add* const add = std::get_if<Add>(&op);
  const std::string fused = add != nullptr && add->activation == Activation::relu ? "; relu fused" : "";
  return {.kernel = kernel,
          .explanation = "cpu: kernel " + kernel + ", target " + std::string(place.target.name) + "; " +
                         std::to_string(place.threads) + (place.threads == 1 ? " thread" : " threads") + fused,
          .fused = true,
          .bound = unweighted_bound(op),
          .workspace_bytes = workspace_bytes,
          .threads = place.threads};
}

class CpuMaxPool final : public PlanImpl {
 public:
  CpuMaxPool(const MaxPool& pool, const CpuPlace& place)
      : CpuMaxPool(pool, place, cpu::MaxPoolPlan(problem_of(pool), place.target, place.threads)) {}
  void run(const RunArguments& a) override { plan_.run(a.inputs[0], a.output); }

 private:
  CpuMaxPool(const MaxPool& pool, const CpuPlace& place, cpu::MaxPoolPlan plan)
      : PlanImpl(details_of(pool, place, plan.workspace_bytes())), plan_(std::move(plan)) {}

  cpu::MaxPoolPlan plan_;
};

class CpuAdd final : public PlanImpl {
 public:
  CpuAdd(const Add& add, const CpuPlace& place) : PlanImpl(details_of(add, place)), add_(add), place_(place) {}
  void run(const RunArguments& a) override {
    const cpu::Addition addition{.count = add_.shape.elements(), .type = add_.dtype, .activation = add_.activation};
    if (!add_.tile) return cpu::add(addition, a.inputs[0], a.inputs[1], a.output, place_.target, place_.threads);
    const cpu::AddTile tile{.lanes = add_.tile.row_chunk, .steps = add_.tile.free_dim};
    cpu::add_in_tiles(addition, tile, a.inputs[0], a.inputs[1], a.output, place_.target, place_.threads);
  }

 private:
  Add add_;
  CpuPlace place_;
};

class CpuTranspose final : public PlanImpl {
 public:
  CpuTranspose(const Transpose& transpose, const CpuPlace& place)
      : PlanImpl(details_of(transpose, place)),
        shape_{.rows = transpose.rows,
               .columns = transpose.columns,
               .x_stride = transpose.columns,
               .y_stride = transpose.rows},
        element_bytes_(static_cast<int>(size_of(transpose.dtype))),
        place_(place) {}
  void run(const RunArguments& a) override {
    cpu::transpose(shape_, a.inputs[0], a.output, element_bytes_, place_.target, place_.threads);
  }

 private:
  cpu::Transpose2d shape_;
  int element_bytes_;
  CpuPlace place_;
};

class CpuReorder final : public PlanImpl {
 public:
  CpuReorder(const Reorder& reorder, const CpuPlace& place)
      : PlanImpl(details_of(reorder, place)), reorder_(reorder), place_(place) {}

  void run(const RunArguments& a) override {
    const Shape& s = reorder_.shape;
    const auto bytes = static_cast<int>(size_of(reorder_.dtype));
    if (reorder_.from == reorder_.to) {
      // The transpose of a matrix of one row is a copy.
      cpu::transpose({.rows = 1, .columns = s.elements(), .x_stride = s.elements(), .y_stride = 1}, a.inputs[0],
                     a.output, bytes, place_.target, place_.threads);
      return;
    }
    const auto reorder = reorder_.to == Layout::nhwc ? cpu::nchw_to_nhwc : cpu::nhwc_to_nchw;
    reorder({s[0], s[1], s[2], s[3], bytes}, a.inputs[0], a.output, place_.target, place_.threads);
  }

 private:
  Reorder reorder_;
  CpuPlace place_;
};

class CpuActivate final : public PlanImpl {
 public:
  CpuActivate(const Activate& activate, const CpuPlace& place)
      : PlanImpl(details_of(activate, place)), problem_(problem_of(activate)), place_(place) {}
  void run(const RunArguments& a) override {
    cpu::activate(problem_, a.inputs[0], a.output, place_.target, place_.threads);
  }

 private:
  ActivateProblem problem_;
  CpuPlace place_;
};

class CpuConcat final : public PlanImpl {
 public:
  CpuConcat(const Concat& concat, const CpuPlace& place)
      : PlanImpl(details_of(concat, place)), problem_(problem_of(concat)), threads_(place.threads) {}
  void run(const RunArguments& a) override { cpu::concat(problem_, a.inputs[0], a.inputs[1], a.output, threads_); }

 private:
  ConcatProblem problem_;
  int threads_;
};

class CpuUpsample final : public PlanImpl {
 public:
  CpuUpsample(const Upsample& upsample, const CpuPlace& place)
      : PlanImpl(details_of(upsample, place)), problem_(problem_of(upsample)), threads_(place.threads) {}
  void run(const RunArguments& a) override { cpu::upsample(problem_, a.inputs[0], a.output, threads_); }

 private:
  UpsampleProblem problem_;
  int threads_;
};

class CpuBilinear final : public PlanImpl {
 public:
  CpuBilinear(const Upsample& upsample, const CpuPlace& place)
      : CpuBilinear(upsample, place, cpu::BilinearPlan(bilinear_problem_of(upsample), place.target, place.threads)) {}
  void run(const RunArguments& a) override { plan_.run(a.inputs[0], a.output); }

 private:
  CpuBilinear(const Upsample& upsample, const CpuPlace& place, cpu::BilinearPlan plan)
      : PlanImpl(details_of(upsample, place, plan.workspace_bytes())), plan_(std::move(plan)) {}

  cpu::BilinearPlan plan_;
};

class CpuMultiply final : public PlanImpl {
 public:
  CpuMultiply(const Multiply& multiply, const CpuPlace& place)
      : PlanImpl(details_of(multiply, place)), problem_(problem_of(multiply)), place_(place) {}
  void run(const RunArguments& a) override {
    cpu::multiply(problem_, a.inputs[0], a.inputs[1], a.output, place_.target, place_.threads);
  }

 private:
  MultiplyProblem problem_;
  CpuPlace place_;
};

class CpuSoftmax final : public PlanImpl {
 public:
  CpuSoftmax(const Softmax& softmax, const CpuPlace& place)
      : PlanImpl(details_of(softmax, place)), problem_(problem_of(softmax)), place_(place) {}
  void run(const RunArguments& a) override {
    cpu::softmax(problem_, a.inputs[0], a.output, place_.target, place_.threads);
  }

 private:
  SoftmaxProblem problem_;
  CpuPlace place_;
};

struct MakeUnweighted {
  const CpuPlace& place;

  std::unique_ptr<PlanImpl> operator()(const MaxPool& op) const { return std::make_unique<CpuMaxPool>(op, place); }
  std::unique_ptr<PlanImpl> operator()(const Add& op) const { return std::make_unique<CpuAdd>(op, place); }
  std::unique_ptr<PlanImpl> operator()(const Transpose& op) const { return std::make_unique<CpuTranspose>(op, place); }
  std::unique_ptr<PlanImpl> operator()(const Reorder& op) const { return std::make_unique<CpuReorder>(op, place); }
  std::unique_ptr<PlanImpl> operator()(const Activate& op) const { return std::make_unique<CpuActivate>(op, place); }
  std::unique_ptr<PlanImpl> operator()(const Concat& op) const { return std::make_unique<CpuConcat>(op, place); }
  std::unique_ptr<PlanImpl> operator()(const Upsample& op) const {
    if (op.interpolation != Interpolation::nearest) return std::make_unique<CpuBilinear>(op, place);
    return std::make_unique<CpuUpsample>(op, place);
  }
  std::unique_ptr<PlanImpl> operator()(const Multiply& op) const { return std::make_unique<CpuMultiply>(op, place); }
  std::unique_ptr<PlanImpl> operator()(const Softmax& op) const { return std::make_unique<CpuSoftmax>(op, place); }
  template <typename Weighted>
  std::unique_ptr<PlanImpl> operator()(const Weighted& op) const {
    throw Error(ErrorCode::unsupported, describe(op) + " has weights");  // KernelList never comes here
  }
};

std::unique_ptr<PlanImpl> make_unweighted(const Op& op, const CpuPlace& place) {
  return std::visit(MakeUnweighted{place}, op);
}

}  // namespace

const CpuKernels& cpu_kernels() {
  static const CpuKernels kernels(weighted_kernels(), make_unweighted);
  return kernels;
}

}  // namespace gable
