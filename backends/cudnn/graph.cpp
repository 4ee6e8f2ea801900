// See graph.h.
#include "backends/cudnn/graph.h"

#include <algorithm>

namespace gable::cudnn {
namespace {

constexpr std::size_t kMaxEngines = 64;
constexpr std::int64_t kTensorAlignment = 16;

/// Numerical notes of engines whose arithmetic the error bounds of this backend do not cover.
bool is_inexact(cudnnBackendNumericalNote_t note) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      return true;
    default:
      return false;
  }
}

template <typename Note>
bool has(const std::vector<Note>& notes, Note note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

/// The engine of a configuration, or nothing if the rules forbid it.
std::optional<Engine> allowed(const Descriptor& configuration, const EngineRules& rules) {
  Descriptor engine(configuration.library(), CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  const auto notes = engine.values<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const bool tensor_cores = has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (std::any_of(notes.begin(), notes.end(), is_inexact) || (tensor_cores && !rules.tensor_cores)) return {};
  const auto behaviour = engine.values<cudnnBackendBehaviorNote_t>(
      CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  const bool compiled = has(behaviour, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
  if (compiled && !rules.compiled_at_run_time) return {};
  const auto index = engine.values<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
  return Engine{configuration, index.empty() ? -1 : index.front(), tensor_cores, compiled};
}

}  // namespace

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::f32:
      break;
  }
  return CUDNN_DATA_FLOAT;
}

Descriptor::Descriptor(const Library& library, cudnnBackendDescriptorType_t type) : library_(&library) {
  cudnnBackendDescriptor_t made = nullptr;
  GABLE_CUDNN_CHECK(library, cudnnBackendCreateDescriptor, type, &made);
  handle_ = {made, [calls = &library](void* handle) { calls->cudnnBackendDestroyDescriptor(handle); }};
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
                            const void* values) {
  GABLE_CUDNN_CHECK(*library_, cudnnBackendSetAttribute, get(), name, type, static_cast<std::int64_t>(count), values);
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
  return set(name, CUDNN_TYPE_INT64, values.size(), values.data());
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, float value) {
  return set(name, CUDNN_TYPE_FLOAT, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, bool value) {
  return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  const cudnnBackendDescriptor_t handle = value.get();
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
}

Descriptor& Descriptor::finalize() {
  GABLE_CUDNN_CHECK(*library_, cudnnBackendFinalize, get());
  return *this;
}

cudnnStatus_t Descriptor::try_finalize() { return library_->cudnnBackendFinalize(get()); }

void Descriptor::get(cudnnBackendAttributeName_t name, Descriptor& value) const {
  cudnnBackendDescriptor_t handle = value.get();
  std::int64_t count = 0;
  GABLE_CUDNN_CHECK(*library_, cudnnBackendGetAttribute, get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                    &handle);
}

Descriptor Graph::tensor(const GraphTensor& tensor) {
  Descriptor made(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, tensor.strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor.id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, tensor.is_virtual)
      .finalize();
  return made;
}

void Graph::convolution(const GraphTensor& x, const GraphTensor& weights, const GraphTensor& y,
                        const ConvolutionAttributes& attributes) {
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Descriptor convolution(library_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, attributes.stride)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, attributes.dilation)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, attributes.before)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, attributes.after)
      .finalize();
  Descriptor operation(library_, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(weights))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor(y))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f)
      .finalize();
  operations_.push_back(std::move(operation));
}

void Graph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b, const GraphTensor& y,
                      float scale_of_b) {
  Descriptor arithmetic(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  arithmetic.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalize();
  Descriptor operation(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, arithmetic)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(x))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(y));
  if (b != nullptr) {
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(*b))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0f)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, scale_of_b);
  }
  operation.finalize();
  operations_.push_back(std::move(operation));
}

std::vector<Engine> Graph::engines(const EngineRules& rules) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const Descriptor& operation : operations_) handles.push_back(operation.get());
  graph_.emplace(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_)
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.size(), handles.data())
      .finalize();
  std::vector<Engine> all;
  std::string why;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) add_engines(mode, *graph_, rules, all, why);
  if (all.empty()) throw Error(ErrorCode::unsupported, "no engine" + (why.empty() ? why : ": " + why));
  return all;
}

void Graph::add_engines(cudnnBackendHeurMode_t mode, const Descriptor& graph, const EngineRules& rules,
                        std::vector<Engine>& all, std::string& why) const {
  Descriptor heuristics(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (const cudnnStatus_t status = heuristics.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
    why = library_.words(status);
    return;
  }
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::size_t i = 0; i < kMaxEngines; ++i) {
    found.emplace_back(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(found.back().get());
  }
  std::int64_t count = 0;
  GABLE_CUDNN_CHECK(library_, cudnnBackendGetAttribute, heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()), &count, handles.data());
  found.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, kMaxEngines)),
               Descriptor(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  for (const Descriptor& configuration : found) {
    std::optional<Engine> engine = allowed(configuration, rules);
    if (engine) all.push_back(std::move(*engine));
  }
  if (all.empty() && !found.empty()) {
    why =
        "its " + std::to_string(found.size()) +
        " engines are not used here: they compute with less than the asked precision, or wrongly for one pixel in nchw";
  }
}

std::optional<ExecutionPlan> Graph::compile(const Engine& engine, std::size_t workspace_limit, std::string& why) const {
  Descriptor plan(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_)
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.configuration);
  if (const cudnnStatus_t status = plan.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
    why = "engine " + std::to_string(engine.index) + ": " + library_.words(status);
    return {};
  }
  const auto asked = plan.values<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
  const std::size_t bytes = asked.empty() ? 0 : static_cast<std::size_t>(asked.front());
  if (bytes > workspace_limit) {
    why = "engine " + std::to_string(engine.index) + " wants a workspace of " + std::to_string(bytes) +
          " bytes, more than " + std::to_string(workspace_limit);
    return {};
  }
  return ExecutionPlan(std::move(plan), bytes);
}

void VariantPack::execute(const Library& library, cudnnHandle_t handle, const ExecutionPlan& plan,
                          std::span<const std::int64_t> ids, std::span<void* const> pointers, void* workspace) {
  if (workspace != workspace_ || !std::equal(pointers.begin(), pointers.end(), known_.begin(), known_.end())) {
    pack_.emplace(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack_->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.size(), pointers.data())
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
        .finalize();
    known_.assign(pointers.begin(), pointers.end());
    workspace_ = workspace;
  }
  GABLE_CUDNN_CHECK(library, cudnnBackendExecute, handle, plan.descriptor().get(), pack_->get());
}

}  // namespace gable::cudnn
