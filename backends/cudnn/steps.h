// What a plan does, as a chain of cuDNN calls over a few tensors. Every step knows its tensors by slot.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/cudnn/entrants.h"
#include "backends/cudnn/graph.h"

namespace gable::cudnn {

enum Slot : std::int64_t { kX, kSecond, kWeights, kBias, kY, kBetween, kYAgain, kBetweenAgain, kRoundedBias, kSlots };
using Pointers = std::array<void*, kSlots>;

/// The device's handle, used by one thread at a time: its stream is a property of the handle.
struct Session {
  Session(const Library& library, int index);
  void use(cudaStream_t stream);
  const Library& library;
  std::shared_ptr<void> owner;
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  std::mutex mutex;
};

class Step {
 public:
  virtual ~Step() = default;
  virtual void run(Session& session, const Pointers& pointers, void* workspace) = 0;
  virtual std::size_t workspace_bytes() const { return 0; }
  virtual std::string description() const = 0;
};

/// A graph with one of its engines. Slots are the graph's tensor ids.
class GraphStep final : public Step {
 public:
  /// Throws Error(unsupported) if no engine takes the graph.
  GraphStep(Graph graph, const EngineRules& rules, std::vector<std::int64_t> slots, std::string what);
  void run(Session& session, const Pointers& pointers, void* workspace) override;
  std::size_t workspace_bytes() const override { return plans_[chosen_]->workspace_bytes(); }
  std::string description() const override;

  std::size_t engines() const { return engines_.size(); }
  std::size_t chosen() const { return chosen_; }
  std::int64_t engine_index() const { return engines_[chosen_].index; }
  bool uses_tensor_cores() const { return engines_[chosen_].tensor_cores; }
  /// Of all engines.
  std::vector<EngineTraits> traits() const;
  /// Takes the engine if it compiles. What was compiled is kept: after others, cuDNN 9.19 refuses to compile the same
  /// configuration of a run-time compiled engine again.
  bool choose(std::size_t engine, std::string& why);
  void forget_others();
  /// What the chosen engine was compiled to, and how another step of the same graph takes it without compiling.
  const ExecutionPlan& compiled() const { return *plans_[chosen_]; }
  void adopt(std::size_t engine, const ExecutionPlan& compiled);

 private:
  Graph graph_;
  std::vector<Engine> engines_;
  std::vector<std::int64_t> slots_;
  std::string what_;
  std::size_t chosen_ = 0;
  std::vector<std::optional<ExecutionPlan>> plans_;  ///< one for each engine
  VariantPack pack_;
};

/// A dense or strided tensor of four dimensions, for cuDNN calls outside the graph API.
struct Strided {
  std::array<std::int64_t, 4> dims, strides;
  DType dtype = DType::f32;
};

struct PoolAttributes {
  std::array<std::int64_t, 2> window, stride, padding;
};

/// cudnnPoolingForward. Throws Error(unsupported) for what it can't express.
std::unique_ptr<Step> make_max_pool(const Library& library, const Strided& x, Slot from, const Strided& y,
                                    const PoolAttributes& attributes);
/// cudnnTransformTensor: copies a tensor into another memory order.
std::unique_ptr<Step> make_transform(const Library& library, const Strided& x, const Strided& y);
/// Rounds the bias to `dtype`.
std::unique_ptr<Step> make_bias_rounding(std::int64_t channels, DType dtype);

}  // namespace gable::cudnn
