// See cudnn_plan.h.
#include "backends/cudnn/cudnn_plan.h"

#include <cstdio>
#include <optional>

#include "backends/cudnn/race.h"
#include "backends/problems.h"
#include "cuda/ops/transpose.h"

namespace gable::cudnn {
namespace {

constexpr double kWorthMeasuring = 1e7;   // FLOP: below, a launch is all the time there is
constexpr std::size_t kAlignment = 16;    // as the graphs declare for their tensors
constexpr std::size_t kMaxWinners = 512;  // of races that are kept, each with its compiled engine

/// The recipes that cuDNN takes until `end`, at least the first. Each compiles its first engine.
Found find_recipes(const Op& op, Session& session, bool compiles, Clock::time_point end) {
  Found found;
  const std::vector<RecipeMaker> makers = recipes_for(op);
  for (std::size_t i = 0; i < makers.size() && (found.recipes.empty() || Clock::now() < end); ++i) {
    try {
      found.recipes.push_back(makers[i](session, compiles));
      found.recipes.back().number = i;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      found.refused += (found.refused.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return found;
}

/// "recipe 0, engine 38, number 3": the numbers are those of the recipe in recipes_for() and of the engine in the order
/// of cuDNN's heuristics, which depend on nothing but the op, the GPU and cuDNN's version.
std::string program_of(const Recipe& recipe) {
  return "recipe " + std::to_string(recipe.number) + ", engine " + std::to_string(recipe.product->engine_index()) +
         ", number " + std::to_string(recipe.product->chosen() + 1);
}

/// The recipe with the engine that `program` names; nothing if there is no such engine any more.
std::optional<Recipe> recipe_of(const std::string& program, const Op& op, Session& session) {
  std::size_t number = 0, place = 0;
  long long engine = 0;
  if (std::sscanf(program.c_str(), "recipe %zu, engine %lld, number %zu", &number, &engine, &place) != 3) return {};
  const std::vector<RecipeMaker> makers = recipes_for(op);
  if (number >= makers.size() || place == 0) return {};
  try {
    Recipe recipe = makers[number](session, true);
    recipe.number = number;
    std::string why;
    if (place > recipe.product->engines() || !recipe.product->choose(place - 1, why)) return {};
    recipe.product->forget_others();
    if (program_of(recipe) != program) return {};
    return recipe;
  } catch (const Error&) {
    return {};
  }
}

/// The recipe with the engine that won an earlier race; nothing if cuDNN no longer takes the graph.
std::optional<Recipe> recipe_of(const Winners::Winner& winner, const Op& op, Session& session) {
  try {
    Recipe recipe = recipes_for(op)[winner.recipe](session, true);
    recipe.number = winner.recipe;
    if (winner.engine >= recipe.product->engines()) return {};
    recipe.product->adopt(winner.engine, winner.compiled);
    if (program_of(recipe) != winner.program) return {};
    return recipe;
  } catch (const Error&) {
    return {};
  }
}

bool is_small(const Op& op) { return work(op).flop < kWorthMeasuring; }

/// Small ops take a precompiled engine if there is one: compiling takes longer than a million of their runs could gain.
Found find_first(const Op& op, Session& session) {
  if (is_small(op)) {
    Found ready = find_recipes(op, session, false, Clock::time_point());
    if (!ready.recipes.empty()) return ready;
  }
  return find_recipes(op, session, true, Clock::time_point());
}

/// KCRS stays as it is for NCHW and becomes KRSC for NHWC, which is the same order for 1x1 filters and for one channel.
/// b of a matrix product is transposed into KRSC of 1x1 filters.
std::uint64_t weights_key(const Op& op) {
  const auto* conv = std::get_if<Conv2d>(&op);
  const Conv2dProblem problem = weighted_op(op).problem;
  const bool one_order = problem.r * problem.s == 1 || problem.group_c() == 1;
  const bool krsc = conv == nullptr || conv->layout == Layout::nhwc || one_order;
  return packing_key("cudnn", packing_of(problem, krsc ? "krsc" : "kcrs", {}));
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
          .packing_key = packed == 0 ? 0 : weights_key(op),
          .program = choice.measured ? program_of(recipe) : ""};
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
  /// Packs in the order that weights_key() names.
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

std::optional<Winners::Winner> Winners::find(const Op& op, const PlanSearch& search) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_op_.find(describe(op));
  if (found == by_op_.end()) return {};
  const Winner& winner = found->second;
  const bool suffices = search.program.empty() ? winner.seconds >= search.seconds : winner.program == search.program;
  if (!suffices) return {};
  return winner;
}

void Winners::keep(const Op& op, Winner winner) {
  const std::lock_guard lock(mutex_);
  if (by_op_.size() >= kMaxWinners) by_op_.clear();
  by_op_.insert_or_assign(describe(op), std::move(winner));
}

Planner::Planner(std::shared_ptr<Session> session, bool measured) : session_(std::move(session)), measured_(measured) {}

std::string Planner::known_refusal(const Op& op) const {
  const std::string why = refusal_without_asking(op);
  return why.empty() ? why : "cuDNN " + session_->library.version() + ": " + why;
}

std::shared_ptr<Found> Planner::find(const Op& op) const { return std::make_shared<Found>(find_first(op, *session_)); }

std::string Planner::refusal(const Found& found) const {
  return found.recipes.empty() ? "cuDNN " + session_->library.version() + ": " + found.refused : "";
}

bool Planner::searches(const Op& op) const { return measured_ && has_weights(op) && !is_small(op); }

std::unique_ptr<PlanImpl> Planner::plan(const Op& op, Found& found, const CudaDevice& device) const {
  Choice choice{std::move(found.recipes.front()), measured_ && has_weights(op)
                                                      ? "too small to be worth measuring: cuDNN's heuristics' first"
                                                      : "cuDNN's heuristics' first, not measured"};
  return std::make_unique<CudnnPlan>(op, device, session_, std::move(choice), found.refused);
}

std::unique_ptr<PlanImpl> Planner::plan(const Op& op, const PlanSearch& search, const CudaDevice& device) const {
  const Clock::time_point begin = Clock::now();
  if (const std::optional<Winners::Winner> winner = winners_.find(op, search)) {
    if (std::optional<Recipe> again = recipe_of(*winner, op, *session_)) {
      Choice choice{std::move(*again), "measured for an earlier plan of the op", true};
      return std::make_unique<CudnnPlan>(op, device, session_, std::move(choice), "");
    }
  }
  if (std::optional<Recipe> known = recipe_of(search.program, op, *session_)) {
    Choice choice{std::move(*known), "measured when the op was tuned", true};
    return std::make_unique<CudnnPlan>(op, device, session_, std::move(choice), "");
  }
  const RaceTime time{begin, search.seconds};
  Found all = find_recipes(op, *session_, true, ready_end(time));
  if (all.recipes.empty()) throw Error(ErrorCode::unsupported, refusal(all));
  Choice choice = fastest(op, device, *session_, std::move(all.recipes), time);
  const GraphStep& product = *choice.recipe.product;
  winners_.keep(
      op, {program_of(choice.recipe), search.seconds, choice.recipe.number, product.chosen(), product.compiled()});
  return std::make_unique<CudnnPlan>(op, device, session_, std::move(choice), all.refused);
}

}  // namespace gable::cudnn
