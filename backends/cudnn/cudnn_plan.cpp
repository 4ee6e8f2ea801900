// See cudnn_plan.h.
#include "backends/cudnn/cudnn_plan.h"

#include "backends/cudnn/race.h"
#include "cuda/ops/transpose.h"

namespace gable::cudnn {
namespace {

constexpr double kWorthMeasuring = 1e7;  // FLOP: below, a launch is all the time there is
constexpr std::size_t kAlignment = 16;   // as the graphs say of their tensors

struct Found {
  std::vector<Recipe> recipes;
  std::string refused;  ///< a line each
};

/// The recipes that cuDNN takes: all of them, or the first.
Found find_recipes(const Op& op, Session& session, bool compiles, bool all) {
  Found found;
  for (const RecipeMaker& make : recipes_for(op)) {
    try {
      found.recipes.push_back(make(session, compiles));
      if (!all) break;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      found.refused += (found.refused.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return found;
}

bool is_small(const Op& op) { return work(op).flop < kWorthMeasuring; }

/// Small ops take what cuDNN has ready, if it has it: compiling would take longer than a million of their runs could
/// gain.
Found find_first(const Op& op, Session& session) {
  if (is_small(op)) {
    Found ready = find_recipes(op, session, false, false);
    if (!ready.recipes.empty()) return ready;
  }
  return find_recipes(op, session, true, false);
}

PlanDetails details_of(const Op& op, const CudaDevice& device, const Session& session, const Choice& choice,
                       const std::string& refused) {
  const Recipe& recipe = choice.recipe;
  std::string text = "cudnn: cuDNN " + session.library.version() + " on " + device.properties().name + "; ";
  for (const auto& step : recipe.steps) text += step->description() + "; ";
  if (recipe.rounds_between) text += "the convolution is rounded before the bias is added; ";
  text += choice.how;
  if (!refused.empty()) text += "\nnot taken: " + refused;
  std::size_t packed = 0;
  if (const auto* c = std::get_if<Conv2d>(&op)) packed = static_cast<std::size_t>(c->weights.elements());
  if (const auto* m = std::get_if<Matmul>(&op)) packed = static_cast<std::size_t>(m->k * m->n);
  packed *= size_of(dtype_of(op));
  return {.kernel = recipe.kernel,
          .explanation = text,
          .fused = recipe.fused,
          .bound = bound_of(op, recipe),
          .workspace_bytes = workspace_bytes(recipe),
          .packed_bytes = packed,
          .packing_key = packed == 0 ? 0 : packing_key("cudnn " + describe(op))};
}

class CudnnPlan final : public CudaPlan {
 public:
  CudnnPlan(const Op& op, const CudaDevice& device, std::shared_ptr<Session> session, Choice choice,
            const std::string& refused)
      : CudaPlan(details_of(op, device, *session, choice, refused), device, op, kAlignment),
        op_(op),
        session_(std::move(session)),
        recipe_(std::move(choice.recipe)) {}

 private:
  /// KCRS stays as it is for NCHW and becomes KRSC for NHWC.
  void launch_pack(const void* weights, void* packed) override {
    const int bytes = static_cast<int>(size_of(dtype_of(op_)));
    if (const auto* matmul = std::get_if<Matmul>(&op_)) {
      cuda::transpose(weights, packed, 1, matmul->k, matmul->n, bytes, nullptr);
      return;
    }
    const auto& conv = std::get<Conv2d>(op_);
    const Shape& w = conv.weights;
    if (conv.layout == Layout::nhwc) {
      cuda::transpose(weights, packed, w[0], w[1], w[2] * w[3], bytes, nullptr);
    } else {
      GABLE_CUDA_CHECK(cudaMemcpyAsync(packed, weights, details().packed_bytes, cudaMemcpyDeviceToDevice, nullptr));
    }
  }

  void launch(const RunArguments& a, cudaStream_t stream) override {
    Pointers pointers{};
    pointers[kX] = const_cast<void*>(a.inputs[0]);  // cuDNN takes every pointer of a graph alike
    pointers[kSecond] = const_cast<void*>(a.inputs[1]);
    pointers[kWeights] = const_cast<void*>(a.weights);
    pointers[kBias] = const_cast<float*>(a.bias);
    pointers[kY] = a.output;
    run_steps(*session_, recipe_, pointers, workspace(), stream);
  }

  Op op_;
  std::shared_ptr<Session> session_;
  Recipe recipe_;
};

}  // namespace

struct Planner::Known {
  Op op;
  Found found;
};

Planner::Planner(std::shared_ptr<Session> session, bool measured) : session_(std::move(session)), measured_(measured) {}
Planner::~Planner() = default;

std::string Planner::refusal(const Op& op) {
  auto known = std::make_unique<Known>(Known{op, find_first(op, *session_)});
  if (known->found.recipes.empty()) return "cuDNN " + session_->library.version() + ": " + known->found.refused;
  const std::lock_guard lock(mutex_);
  known_ = std::move(known);
  return "";
}

std::unique_ptr<Planner::Known> Planner::taken(const Op& op) {
  const std::lock_guard lock(mutex_);
  return known_ && known_->op == op ? std::move(known_) : nullptr;
}

std::unique_ptr<PlanImpl> Planner::plan(const Op& op, const CudaDevice& device) {
  const Clock::time_point begin = Clock::now();
  const bool weighted = std::holds_alternative<Conv2d>(op) || std::holds_alternative<Matmul>(op);
  const bool races = measured_ && weighted && !is_small(op);
  const std::unique_ptr<Known> known = races ? nullptr : taken(op);
  Found found = races   ? find_recipes(op, *session_, true, true)
                : known ? std::move(known->found)
                        : find_first(op, *session_);
  if (found.recipes.empty()) throw Error(ErrorCode::unsupported, describe(op) + ": " + found.refused);
  Choice choice = races ? fastest(op, device, *session_, std::move(found.recipes), begin)
                        : Choice{std::move(found.recipes.front()),
                                 measured_ && weighted ? "too small to be worth measuring: cuDNN's heuristics' first"
                                                       : "cuDNN's heuristics' first, not measured"};
  return std::make_unique<CudnnPlan>(op, device, session_, std::move(choice), found.refused);
}

}  // namespace gable::cudnn
