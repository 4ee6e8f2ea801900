// See steps.h.
#include "backends/cudnn/steps.h"

#include <algorithm>
#include <limits>

#include "backends/cuda/cuda_device.h"
#include "cuda/ops/elementwise.h"

namespace gable::cudnn {
namespace {

constexpr std::size_t kWorkspaceLimit = std::size_t{1} << 30;
constexpr float kOne = 1.0f, kZero = 0.0f;

int as_int(std::int64_t value) {
  if (value <= std::numeric_limits<int>::max()) return static_cast<int>(value);
  throw Error(ErrorCode::unsupported, "a size or stride of " + std::to_string(value) + " is beyond cuDNN's int");
}

std::shared_ptr<void> make_tensor(const Library& library, const Strided& t) {
  cudnnTensorDescriptor_t made = nullptr;
  GABLE_CUDNN_CHECK(library, cudnnCreateTensorDescriptor, &made);
  std::shared_ptr<void> owner(made, [calls = &library](void* descriptor) {
    calls->cudnnDestroyTensorDescriptor(static_cast<cudnnTensorDescriptor_t>(descriptor));
  });
  std::array<int, 4> dims{}, strides{};
  std::transform(t.dims.begin(), t.dims.end(), dims.begin(), as_int);
  std::transform(t.strides.begin(), t.strides.end(), strides.begin(), as_int);
  GABLE_CUDNN_CHECK(library, cudnnSetTensor4dDescriptorEx, made, data_type(t.dtype), dims[0], dims[1], dims[2], dims[3],
                    strides[0], strides[1], strides[2], strides[3]);
  return owner;
}

cudnnTensorDescriptor_t tensor_of(const std::shared_ptr<void>& owner) {
  return static_cast<cudnnTensorDescriptor_t>(owner.get());
}

class PoolStep final : public Step {
 public:
  PoolStep(std::shared_ptr<void> pool, std::shared_ptr<void> x, Slot from, std::shared_ptr<void> y)
      : pool_(std::move(pool)), x_(std::move(x)), y_(std::move(y)), from_(from) {}

  void run(Session& session, const Pointers& pointers, void*) override {
    GABLE_CUDNN_CHECK(session.library, cudnnPoolingForward, session.handle,
                      static_cast<cudnnPoolingDescriptor_t>(pool_.get()), &kOne, tensor_of(x_), pointers[from_], &kZero,
                      tensor_of(y_), pointers[kY]);
  }
  std::string description() const override { return "cudnnPoolingForward"; }

 private:
  std::shared_ptr<void> pool_, x_, y_;
  Slot from_;
};

class TransformStep final : public Step {
 public:
  TransformStep(std::shared_ptr<void> x, std::shared_ptr<void> y) : x_(std::move(x)), y_(std::move(y)) {}

  void run(Session& session, const Pointers& pointers, void*) override {
    GABLE_CUDNN_CHECK(session.library, cudnnTransformTensor, session.handle, &kOne, tensor_of(x_), pointers[kX], &kZero,
                      tensor_of(y_), pointers[kY]);
  }
  std::string description() const override { return "cudnnTransformTensor"; }

 private:
  std::shared_ptr<void> x_, y_;
};

class BiasRoundingStep final : public Step {
 public:
  BiasRoundingStep(std::int64_t channels, DType dtype) : channels_(channels), dtype_(dtype) {}

  void run(Session& session, const Pointers& pointers, void*) override {
    cuda::convert(static_cast<const float*>(pointers[kBias]), pointers[kRoundedBias], channels_, dtype_,
                  session.stream);
  }
  std::string description() const override { return "the bias rounded to " + std::string(to_string(dtype_)); }

 private:
  std::int64_t channels_;
  DType dtype_;
};

}  // namespace

Session::Session(const Library& calls, int index) : library(calls) {
  const CurrentDevice current(index);
  GABLE_CUDNN_CHECK(library, cudnnCreate, &handle);
  owner = {handle, [lib = &library](void* h) { lib->cudnnDestroy(static_cast<cudnnHandle_t>(h)); }};
}

void Session::use(cudaStream_t of_work) {
  GABLE_CUDNN_CHECK(library, cudnnSetStream, handle, of_work);
  stream = of_work;
}

GraphStep::GraphStep(Graph graph, const EngineRules& rules, std::vector<std::int64_t> slots, std::string what)
    : graph_(std::move(graph)),
      engines_(graph_.engines(rules)),
      slots_(std::move(slots)),
      what_(std::move(what)),
      plans_(engines_.size()) {
  std::string why;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    if (choose(i, why)) return;
  }
  throw Error(ErrorCode::unsupported, what_ + ": none of " + std::to_string(engines_.size()) + " engines: " + why);
}

bool GraphStep::choose(std::size_t engine, std::string& why) {
  if (!plans_[engine]) plans_[engine] = graph_.compile(engines_[engine], kWorkspaceLimit, why);
  if (!plans_[engine]) return false;
  chosen_ = engine;
  return true;
}

std::vector<EngineTraits> GraphStep::traits() const {
  std::vector<EngineTraits> all;
  for (const Engine& one : engines_) all.push_back({one.index, one.tensor_cores, one.compiled_at_run_time});
  return all;
}

void GraphStep::forget_others() {
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (i != chosen_) plans_[i].reset();
  }
}

void GraphStep::adopt(std::size_t engine, const ExecutionPlan& compiled) {
  plans_[engine] = compiled;
  chosen_ = engine;
  forget_others();
}

void GraphStep::run(Session& session, const Pointers& pointers, void* workspace) {
  std::array<void*, kSlots> used{};
  for (std::size_t i = 0; i < slots_.size(); ++i) used[i] = pointers[static_cast<std::size_t>(slots_[i])];
  pack_.execute(session.library, session.handle, *plans_[chosen_], slots_, std::span(used).first(slots_.size()),
                workspace);
}

std::string GraphStep::description() const {
  const Engine& engine = engines_[chosen_];
  return what_ + " on engine " + std::to_string(engine.index) + ", number " + std::to_string(chosen_ + 1) + " of " +
         std::to_string(engines_.size()) + " by its heuristics (" +
         (engine.tensor_cores ? "tensor cores" : "no tensor cores") +
         (engine.compiled_at_run_time ? ", compiled at run time" : "") + ", workspace of " +
         std::to_string(plans_[chosen_]->workspace_bytes()) + " bytes)";
}

std::unique_ptr<Step> make_max_pool(const Library& library, const Strided& x, Slot from, const Strided& y,
                                    const PoolAttributes& a) {
  cudnnPoolingDescriptor_t made = nullptr;
  GABLE_CUDNN_CHECK(library, cudnnCreatePoolingDescriptor, &made);
  std::shared_ptr<void> pool(made, [calls = &library](void* descriptor) {
    calls->cudnnDestroyPoolingDescriptor(static_cast<cudnnPoolingDescriptor_t>(descriptor));
  });
  GABLE_CUDNN_CHECK(library, cudnnSetPooling2dDescriptor, made, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN,
                    as_int(a.window[0]), as_int(a.window[1]), as_int(a.padding[0]), as_int(a.padding[1]),
                    as_int(a.stride[0]), as_int(a.stride[1]));
  std::shared_ptr<void> source = make_tensor(library, x), target = make_tensor(library, y);
  int n = 0, c = 0, h = 0, w = 0;
  GABLE_CUDNN_CHECK(library, cudnnGetPooling2dForwardOutputDim, made, tensor_of(source), &n, &c, &h, &w);
  if (h != y.dims[2] || w != y.dims[3]) {
    throw Error(ErrorCode::unsupported, "cudnnPoolingForward pads both sides alike, which would give an output of " +
                                            std::to_string(h) + "x" + std::to_string(w) + " instead of " +
                                            std::to_string(y.dims[2]) + "x" + std::to_string(y.dims[3]));
  }
  return std::make_unique<PoolStep>(std::move(pool), std::move(source), from, std::move(target));
}

std::unique_ptr<Step> make_transform(const Library& library, const Strided& x, const Strided& y) {
  return std::make_unique<TransformStep>(make_tensor(library, x), make_tensor(library, y));
}

std::unique_ptr<Step> make_bias_rounding(std::int64_t channels, DType dtype) {
  return std::make_unique<BiasRoundingStep>(channels, dtype);
}

}  // namespace gable::cudnn
