// One cuDNN operation graph and the engines that run it, through cuDNN's backend API: descriptors that are filled
// attribute by attribute, then finalized.
#pragma once

#include <gable/dtype.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/cudnn/library.h"

namespace gable::cudnn {

cudnnDataType_t data_type(DType dtype);

class Descriptor {
 public:
  Descriptor(const Library& library, cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                  const void* values);
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values);
  Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) { return set(name, std::span(&value, 1)); }
  Descriptor& set(cudnnBackendAttributeName_t name, float value);
  Descriptor& set(cudnnBackendAttributeName_t name, bool value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value);
  Descriptor& finalize();
  cudnnStatus_t try_finalize();

  /// The attribute's values; `most` bounds how many.
  template <typename Value>
  std::vector<Value> values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::size_t most) const {
    std::vector<Value> all(most);
    std::int64_t count = 0;
    GABLE_CUDNN_CHECK(*library_, cudnnBackendGetAttribute, get(), name, type, static_cast<std::int64_t>(most), &count,
                      all.data());
    all.resize(std::min(most, static_cast<std::size_t>(count)));
    return all;
  }
  /// Fills `value`, a descriptor of the attribute's kind.
  void get(cudnnBackendAttributeName_t name, Descriptor& value) const;
  const Library& library() const { return *library_; }

 private:
  const Library* library_;
  std::shared_ptr<void> handle_;
};

/// A tensor of the graph. Virtual ones live only inside the engine.
struct GraphTensor {
  std::int64_t id = 0;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false;
};

struct ConvolutionAttributes {
  std::array<std::int64_t, 2> stride, dilation, before, after;
};

/// How an engine computes, by its own notes.
struct Engine {
  Descriptor configuration;
  std::int64_t index = 0;
  bool tensor_cores = false;
  bool compiled_at_run_time = false;
};

/// The engines that may be used. Products on tensor cores change the arithmetic of f32.
struct EngineRules {
  bool tensor_cores = true;
  bool compiled_at_run_time = true;
};

class ExecutionPlan {
 public:
  ExecutionPlan(Descriptor plan, std::size_t workspace_bytes) : plan_(std::move(plan)), bytes_(workspace_bytes) {}
  std::size_t workspace_bytes() const { return bytes_; }
  const Descriptor& descriptor() const { return plan_; }

 private:
  Descriptor plan_;
  std::size_t bytes_;
};

class Graph {
 public:
  Graph(const Library& library, cudnnHandle_t handle) : library_(library), handle_(handle) {}

  // Operations in their order; accumulation and element-wise arithmetic are f32.
  void convolution(const GraphTensor& x, const GraphTensor& weights, const GraphTensor& y,
                   const ConvolutionAttributes& attributes);
  /// mode(x, scale_of_b * b)
  void pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b, const GraphTensor& y,
                 float scale_of_b = 1.0f);

  /// After the last operation: the engines in the order of cuDNN's heuristics. Those that compute otherwise than the
  /// rules allow are left out. Throws Error(unsupported).
  std::vector<Engine> engines(const EngineRules& rules);
  /// Empty where compiling fails; `why` then has the reason.
  std::optional<ExecutionPlan> compile(const Engine& engine, std::size_t workspace_limit, std::string& why) const;

 private:
  Descriptor tensor(const GraphTensor& tensor);
  void add_engines(cudnnBackendHeurMode_t mode, const Descriptor& graph, const EngineRules& rules,
                   std::vector<Engine>& all, std::string& why) const;

  const Library& library_;
  cudnnHandle_t handle_;
  std::vector<Descriptor> operations_;
  std::optional<Descriptor> graph_;
};

/// The pointers of a run, rebuilt only when one of them changes.
class VariantPack {
 public:
  void execute(const Library& library, cudnnHandle_t handle, const ExecutionPlan& plan,
               std::span<const std::int64_t> ids, std::span<void* const> pointers, void* workspace);

 private:
  std::optional<Descriptor> pack_;
  std::vector<void*> known_;
  void* workspace_ = nullptr;
};

}  // namespace gable::cudnn
