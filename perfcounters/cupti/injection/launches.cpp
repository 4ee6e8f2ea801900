// See launches.h.
#include "perfcounters/cupti/injection/launches.h"

#include <algorithm>

#include "perfcounters/cupti/injection/argument_hash.h"
#include "perfcounters/cupti/injection/arguments.h"

namespace gable::cupti {
namespace {

struct KnownCall {
  CUpti_CallbackId id;
  Call call;
};

constexpr KnownCall kKnown[] = {
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunch, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync, Call::launch},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, Call::graph_launch},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz, Call::graph_launch},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate, Call::graph_instantiate},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiate_v2, Call::graph_instantiate},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags, Call::graph_instantiate},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams, Call::graph_instantiate},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithParams_ptsz, Call::graph_instantiate},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate, Call::graph_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2, Call::graph_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams, Call::graph_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams_v2, Call::graph_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams, Call::graph_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecChildGraphNodeSetParams, Call::graph_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled, Call::graph_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemcpyNodeSetParams, Call::graph_step_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecMemsetNodeSetParams, Call::graph_step_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecHostNodeSetParams, Call::graph_step_change},
    {CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, Call::graph_destroy},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture, Call::begin_capture},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz, Call::begin_capture},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2, Call::begin_capture},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz, Call::begin_capture},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph, Call::begin_capture},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph_ptsz, Call::begin_capture},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture, Call::end_capture},
    {CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture_ptsz, Call::end_capture},
};

int of(unsigned int extent) { return static_cast<int>(extent); }

/// From the parameters of a launch or of a graph's node, which have the same names.
template <typename Parameters>
KernelShape with_extents(const char* name, const Parameters& p) {
  return {name, {of(p.gridDimX), of(p.gridDimY), of(p.gridDimZ)}, {of(p.blockDimX), of(p.blockDimY), of(p.blockDimZ)}};
}

/// Gives `use` the parameters of a launch that have its extents, if it is known where they are.
template <typename Use>
void use_extents(CUpti_CallbackId call, const CUpti_CallbackData& data, const Use& use) {
  switch (call) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
      use(*static_cast<const cuLaunchKernel_params*>(data.functionParams));
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
      use(*static_cast<const cuLaunchCooperativeKernel_params*>(data.functionParams));
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
      if (const auto* config = static_cast<const cuLaunchKernelEx_params*>(data.functionParams)->config) use(*config);
      break;
    default:
      break;
  }
}

/// The hash of the arguments of a launch or of a graph's node.
template <typename Parameters>
std::uint64_t hash_of(void* function, const Parameters& p) {
  return arguments().hash(function, p.kernelParams, p.extra);
}

std::uint64_t number_of(CUgraphNode node) {
  std::uint64_t number = 0;
  return functions().graph_node_id(node, &number) == CUPTI_SUCCESS ? number : 0;
}

std::optional<KernelShape> of_node(CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS parameters{};
  if (driver().kernel_node(node, &parameters) != CUDA_SUCCESS) return std::nullopt;
  const char* name = nullptr;
  const CUresult named = parameters.func != nullptr ? driver().function_name(&name, parameters.func)
                                                    : driver().kernel_name(&name, parameters.kern);
  if (named != CUDA_SUCCESS || name == nullptr) return std::nullopt;
  KernelShape shape = with_extents(name, parameters);
  shape.arguments =
      hash_of(parameters.func != nullptr ? static_cast<void*>(parameters.func) : static_cast<void*>(parameters.kern),
              parameters);
  return shape;
}

/// Appends the kernels of a graph; false if some of them can't be known (conditional nodes run as often as they like).
bool append_kernels(CUgraph graph, ReadGraph& all) {
  std::size_t count = 0;
  if (driver().graph_nodes(graph, nullptr, &count) != CUDA_SUCCESS) return false;
  std::vector<CUgraphNode> nodes(count);
  if (count > 0 && driver().graph_nodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return false;
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver().node_type(node, &type) != CUDA_SUCCESS) return false;
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return false;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (driver().child_graph(node, &child) != CUDA_SUCCESS || !append_kernels(child, all)) return false;
    }
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    std::optional<KernelShape> shape = of_node(node);
    if (!shape) return false;
    all.kernels.push_back(std::move(*shape));
    all.nodes.push_back(number_of(node));
  }
  return true;
}

// All variants of these calls begin with the same parameters.
struct InstantiateParameters {
  CUgraphExec* exec;
  CUgraph graph;
};
struct ChangeParameters {
  CUgraphExec exec;
  CUgraph graph;  // of an update
};

std::uint64_t number_of(const std::vector<KernelShape>& kernels) {
  ArgumentHash hash;
  const auto no_address = [](std::uint64_t) { return false; };
  for (const KernelShape& shape : kernels) {
    hash.add(shape.name.data(), shape.name.size(), no_address);
    hash.add(shape.grid.data(), sizeof shape.grid, no_address);
    hash.add(shape.block.data(), sizeof shape.block, no_address);
  }
  return hash.value();
}

bool is_update(CUpti_CallbackId call) {
  return call == CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate || call == CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2;
}

}  // namespace

Call kind_of(CUpti_CallbackId call) {
  const auto* found =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const KnownCall& k) { return k.id == call; });
  return found != std::end(kKnown) ? found->call : Call::other;
}

std::vector<CUpti_CallbackId> known_calls() {
  std::vector<CUpti_CallbackId> calls;
  for (const KnownCall& known : kKnown) calls.push_back(known.id);
  return calls;
}

std::optional<KernelShape> shape_of(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  std::optional<KernelShape> shape;
  if (data.symbolName == nullptr) return shape;
  use_extents(call, data, [&](const auto& parameters) { shape = with_extents(data.symbolName, parameters); });
  return shape;
}

std::int64_t blocks_of(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  std::int64_t blocks = 0;
  use_extents(call, data, [&](const auto& p) { blocks = std::int64_t{p.gridDimX} * p.gridDimY * p.gridDimZ; });
  return blocks;
}

std::int64_t blocks_of(const KernelShape& shape) { return std::int64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2]; }

std::uint64_t arguments_of(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  switch (call) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernel_params*>(data.functionParams);
      return hash_of(p.f, p);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz: {
      const auto& p = *static_cast<const cuLaunchCooperativeKernel_params*>(data.functionParams);
      return arguments().hash(p.f, p.kernelParams, nullptr);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz: {
      const auto& p = *static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
      return hash_of(p.f, p);
    }
    default:
      return 0;
  }
}

ReadGraph read_graph(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  ReadGraph read;
  CUgraph graph = nullptr;
  if (kind_of(call) == Call::graph_instantiate) {
    const auto* parameters = static_cast<const InstantiateParameters*>(data.functionParams);
    if (parameters->exec != nullptr) read.exec = *parameters->exec;
    graph = parameters->graph;
  } else {
    const auto* parameters = static_cast<const ChangeParameters*>(data.functionParams);
    read.exec = parameters->exec;
    read.is_changed = true;
    // A node that was changed alone: its graph is not known any more.
    if (is_update(call)) graph = parameters->graph;
  }
  read.graph = graph;
  read.is_known = graph != nullptr && append_kernels(graph, read);
  for (const KernelShape& kernel : read.kernels) read.blocks += blocks_of(kernel);
  read.number = number_of(read.kernels);
  return read;
}

CUgraphExec exec_of(const CUpti_CallbackData& data) {
  return *static_cast<const CUgraphExec*>(data.functionParams);  // the first parameter of them all
}

CUstream stream_of(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  const CUstream stream = static_cast<const cuGraphLaunch_params*>(data.functionParams)->hStream;
  if (stream != nullptr) return stream;
  return call == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

ClonedNode read_clone(const CUpti_GraphData& data) { return {number_of(data.node), number_of(data.originalNode)}; }

void Graphs::keep(ReadGraph graph) {
  // A graph that is changed keeps its nodes, whose arguments are others then.
  if (const auto before = graphs_.find(graph.exec); before != graphs_.end() && graph.is_changed) {
    for (const std::uint64_t node : before->second.nodes) arguments_.erase(node);
  }
  graphs_.erase(graph.exec);
  if (!graph.is_known) return;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) arguments_[graph.nodes[i]] = graph.kernels[i].arguments;
  graphs_[graph.exec] = std::move(graph);
}

const ReadGraph* Graphs::find(const CUpti_CallbackData& data) const {
  const auto found = graphs_.find(exec_of(data));
  return found != graphs_.end() ? &found->second : nullptr;
}

const std::vector<KernelShape>* Graphs::kernels(const CUpti_CallbackData& data) const {
  const ReadGraph* graph = find(data);
  return graph != nullptr ? &graph->kernels : nullptr;
}

Launched Graphs::launched(const CUpti_CallbackData& data) const {
  const ReadGraph* graph = find(data);
  if (graph == nullptr) return {};
  return {.kernels = static_cast<std::int64_t>(graph->kernels.size()), .blocks = graph->blocks};
}

std::uint64_t Graphs::number(const CUpti_CallbackData& data) const {
  const ReadGraph* graph = find(data);
  return graph != nullptr ? graph->number : 1;
}

std::uint64_t Graphs::arguments(std::uint64_t node) const {
  // A clone of a clone: an instantiated child graph.
  for (int clones = 0; clones < 8; ++clones) {
    if (const auto found = arguments_.find(node); found != arguments_.end()) return found->second;
    const auto original = originals_.find(node);
    if (original == originals_.end()) break;
    node = original->second;
  }
  return 0;
}

}  // namespace gable::cupti
