// See cudnn_plan.h.
#include "backends/cudnn/cudnn_plan.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "cuda/transpose.h"

namespace gable::cudnn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostMeasured = 14;  // engines a recipe
constexpr std::chrono::seconds kBudget{5};  // an engine that is compiled at run time takes up to 0.3 s
constexpr double kWorthMeasuring = 1e7;  // FLOP: below, a launch is all the time there is
constexpr std::size_t kAlignment = 16;   // as the graphs say of their tensors
constexpr std::size_t kWorkspaceAlignment = 256;
constexpr int kAnyByte = 0x3c;  // repeated, a number near one or small in every dtype: power and so clocks as usual

std::size_t between_offset(const Recipe& recipe) {
  return (recipe.workspace_bytes() + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

std::size_t workspace_bytes(const Recipe& recipe) { return between_offset(recipe) + recipe.between_bytes; }

/// On `stream`, with pointers to everything but what lies in the workspace.
void run_steps(Session& session, Recipe& recipe, Pointers pointers, void* workspace, cudaStream_t stream) {
  pointers[kBetween] = static_cast<char*>(workspace) + between_offset(recipe);
  pointers[kBetweenAgain] = pointers[kBetween];
  pointers[kYAgain] = pointers[kY];
  const std::lock_guard lock(session.mutex);
  GABLE_CUDNN_CHECK(session.library, cudnnSetStream, session.handle, stream);
  for (const auto& step : recipe.steps) step->run(session, pointers, workspace);
}

class Event {
 public:
  Event() { GABLE_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cuda::ignore(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() const { GABLE_CUDA_CHECK(cudaEventRecord(event_)); }
  double milliseconds_since(const Event& begin) const {
    GABLE_CUDA_CHECK(cudaEventSynchronize(event_));
    float time = 0;
    GABLE_CUDA_CHECK(cudaEventElapsedTime(&time, begin.event_, event_));
    return time;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Operands to measure on.
class Sample {
 public:
  Sample(const Op& op, const CudaDevice& device) : device_(device) {
    const Work traffic = work(op);
    const auto bytes = static_cast<std::size_t>(traffic.bytes_read);
    inputs_ = filled(bytes);  // x, weights and bias may share memory: they are only read
    output_ = filled(static_cast<std::size_t>(traffic.bytes_written));
    pointers_.fill(inputs_.get());
    pointers_[kY] = output_.get();
  }

  /// Of one run, in milliseconds: the least of a few batches.
  double time(Session& session, Recipe& recipe) const {
    const std::shared_ptr<void> workspace = device_.allocate(workspace_bytes(recipe));
    const auto batch = [&](int runs) {
      const Event begin, end;
      begin.record();
      for (int i = 0; i < runs; ++i) run_steps(session, recipe, pointers_, workspace.get(), nullptr);
      end.record();
      return end.milliseconds_since(begin) / runs;
    };
    batch(1);
    const double first = batch(1);
    const int runs = std::clamp(static_cast<int>(1.0 / std::max(first, 1e-3)), 1, 50);
    double least = first;
    for (int i = 0; i < 3; ++i) least = std::min(least, batch(runs));
    return least;
  }

 private:
  std::shared_ptr<void> filled(std::size_t bytes) const {
    std::shared_ptr<void> memory = device_.allocate(bytes);
    GABLE_CUDA_CHECK(cudaMemsetAsync(memory.get(), kAnyByte, bytes));
    return memory;
  }

  const CudaDevice& device_;
  std::shared_ptr<void> inputs_, output_;
  Pointers pointers_{};
};

struct Choice {
  Recipe recipe;
  std::string how;
};

struct Found {
  std::vector<Recipe> recipes;
  std::string refused;  ///< a line each
};

/// The recipes that cuDNN takes: all of them, or the first.
Found find_recipes(const Op& op, Session& session, bool all) {
  Found found;
  for (const RecipeMaker& make : recipes_for(op)) {
    try {
      found.recipes.push_back(make(session));
      if (!all) break;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::out_of_memory) throw;
      found.refused += (found.refused.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return found;
}

/// Measures engines of the recipe until `deadline`, and leaves it with the fastest. Returns its time; counts in
/// `tried`.
double tune(const Sample& sample, Session& session, Recipe& recipe, Clock::time_point deadline, int& tried) {
  double least = sample.time(session, recipe);
  ++tried;
  if (recipe.product == nullptr) return least;
  std::size_t best = recipe.product->chosen();
  std::string why;
  std::size_t measured = 1;
  for (std::size_t i = best + 1; i < recipe.product->engines() && measured < kMostMeasured; ++i) {
    if (Clock::now() > deadline) break;
    if (!recipe.product->choose(i, why)) continue;
    ++measured;
    ++tried;
    const double time = sample.time(session, recipe);
    if (time < least) {
      least = time;
      best = i;
    }
  }
  recipe.product->choose(best, why);
  return least;
}

Choice fastest(const Op& op, const CudaDevice& device, Session& session, std::vector<Recipe> recipes) {
  const Clock::time_point begin = Clock::now();
  const Sample sample(op, device);
  int tried = 0;
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = 0;
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const auto share = kBudget * static_cast<int>(i + 1) / static_cast<int>(recipes.size());
    const double time = tune(sample, session, recipes[i], begin + share, tried);
    if (time < least) {
      least = time;
      best = i;
    }
  }
  return {std::move(recipes[best]), "measured, the fastest of " + std::to_string(tried) + " (" +
                                        std::to_string(recipes.size()) + " ways) at " + std::to_string(least) + " ms"};
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

std::string refusal(const Op& op, Session& session) {
  const Found found = find_recipes(op, session, false);
  return found.recipes.empty() ? "cuDNN " + session.library.version() + ": " + found.refused : "";
}

std::unique_ptr<PlanImpl> make_plan(const Op& op, const CudaDevice& device, std::shared_ptr<Session> session,
                                    bool measured) {
  const bool measures = measured && work(op).flop >= kWorthMeasuring;
  Found found = find_recipes(op, *session, measures);
  if (found.recipes.empty()) throw Error(ErrorCode::unsupported, describe(op) + ": " + found.refused);
  Choice choice = measures ? fastest(op, device, *session, std::move(found.recipes))
                           : Choice{std::move(found.recipes.front()),
                                    measured ? "too small to be worth measuring: chosen by cuDNN's heuristics"
                                             : "chosen by cuDNN's heuristics, not measured"};
  return std::make_unique<CudnnPlan>(op, device, std::move(session), std::move(choice), found.refused);
}

}  // namespace gable::cudnn
