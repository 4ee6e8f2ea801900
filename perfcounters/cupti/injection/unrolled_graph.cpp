// See unrolled_graph.h.
#include "perfcounters/cupti/injection/unrolled_graph.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

namespace gable::cupti {
namespace {

// What a node's kernel needs of its launch. Priorities order nodes that could run at the same time, which these don't.
constexpr CUlaunchAttributeID kKept[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                         CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                         CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE};

bool is_set(CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return value.accessPolicyWindow.num_bytes > 0;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      return value.cooperative != 0;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return value.clusterDim.x > 0;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return value.clusterSchedulingPolicyPreference != CU_CLUSTER_SCHEDULING_POLICY_DEFAULT;
    default:
      return false;
  }
}

constexpr const char* kUnread = "can't be read by this driver";

const char* refusal_of(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return nullptr;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "has events";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "allocates memory";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "has conditional nodes";
    default:
      return "waits for others";
  }
}

}  // namespace

std::vector<std::size_t> order_of(std::size_t count, const std::vector<std::pair<std::size_t, std::size_t>>& edges) {
  std::vector<std::vector<std::size_t>> next(count);
  std::vector<std::size_t> before(count);
  for (const auto& [from, to] : edges) {
    next[from].push_back(to);
    ++before[to];
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < count; ++i) {
    if (before[i] == 0) ready.push(i);
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t one = ready.top();
    ready.pop();
    order.push_back(one);
    for (const std::size_t to : next[one]) {
      if (--before[to] == 0) ready.push(to);
    }
  }
  if (order.size() < count) order.clear();
  return order;
}

UnrolledGraph::UnrolledGraph(const Driver& driver, CUgraph graph) : driver_(driver) {
  // The nodes first: the driver refuses to clone some of them, and does not say why.
  append(graph);
  steps_.clear();
  if (!refusal_.empty()) return;
  if (driver_.graph_clone(&clone_, graph) != CUDA_SUCCESS) {
    clone_ = nullptr;
    refuse("can't be cloned");
    return;
  }
  append(clone_);
}

UnrolledGraph::~UnrolledGraph() {
  if (clone_ != nullptr) driver_.graph_destroy(clone_);
}

void UnrolledGraph::refuse(const char* reason) {
  if (refusal_.empty()) refusal_ = reason;
}

std::optional<std::vector<CUgraphNode>> UnrolledGraph::ordered_nodes(CUgraph graph) const {
  std::size_t count = 0, edges = 0;
  if (driver_.graph_edges == nullptr || driver_.graph_nodes(graph, nullptr, &count) != CUDA_SUCCESS ||
      driver_.graph_edges(graph, nullptr, nullptr, nullptr, &edges) != CUDA_SUCCESS)
    return std::nullopt;
  std::vector<CUgraphNode> nodes(count), from(edges), to(edges);
  std::vector<CUgraphEdgeData> data(edges);  // kernels that begin before others end: as ordinary launches they don't
  if ((count > 0 && driver_.graph_nodes(graph, nodes.data(), &count) != CUDA_SUCCESS) ||
      (edges > 0 && driver_.graph_edges(graph, from.data(), to.data(), data.data(), &edges) != CUDA_SUCCESS))
    return std::nullopt;
  std::unordered_map<CUgraphNode, std::size_t> numbers;
  for (std::size_t i = 0; i < count; ++i) numbers[nodes[i]] = i;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < edges; ++i) pairs.emplace_back(numbers[from[i]], numbers[to[i]]);
  const std::vector<std::size_t> order = order_of(count, pairs);
  if (order.size() < count) return std::nullopt;
  std::vector<CUgraphNode> ordered;
  for (const std::size_t place : order) ordered.push_back(nodes[place]);
  return ordered;
}

void UnrolledGraph::append(CUgraph graph) {
  const std::optional<std::vector<CUgraphNode>> nodes = ordered_nodes(graph);
  if (!nodes) return refuse(kUnread);
  for (const CUgraphNode node : *nodes) append_node(node);
}

void UnrolledGraph::append_node(CUgraphNode node) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (driver_.node_type(node, &type) != CUDA_SUCCESS) return refuse(kUnread);
  if (const char* reason = refusal_of(type)) return refuse(reason);
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    if (driver_.child_graph(node, &child) != CUDA_SUCCESS) return refuse(kUnread);
    return append(child);
  }
  CUlaunchAttributeValue value{};
  if (type == CU_GRAPH_NODE_TYPE_KERNEL &&
      driver_.kernel_attribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) == CUDA_SUCCESS &&
      value.deviceUpdatableKernelNode.deviceUpdatable != 0)
    return refuse("is changed by its kernels");
  if (type != CU_GRAPH_NODE_TYPE_EMPTY) steps_.push_back({node, type});
}

CUresult UnrolledGraph::run(CUstream stream) const {
  for (const Step& step : steps_) {
    if (const CUresult result = start(step, stream); result != CUDA_SUCCESS) {
      broke_off_ = &step != steps_.data();
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult UnrolledGraph::start(const Step& step, CUstream stream) const {
  if (step.type == CU_GRAPH_NODE_TYPE_KERNEL) return start_kernel(step.node, stream);
  if (step.type == CU_GRAPH_NODE_TYPE_MEMSET) return start_fill(step.node, stream);
  if (step.type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    CUDA_MEMCPY3D copy{};
    const CUresult read = driver_.copy_node(step.node, &copy);
    return read == CUDA_SUCCESS ? driver_.copy(&copy, stream) : read;
  }
  CUDA_HOST_NODE_PARAMS host{};
  const CUresult read = driver_.host_node(step.node, &host);
  return read == CUDA_SUCCESS ? driver_.launch_host(stream, host.fn, host.userData) : read;
}

CUresult UnrolledGraph::start_kernel(CUgraphNode node, CUstream stream) const {
  CUDA_KERNEL_NODE_PARAMS p{};
  if (const CUresult read = driver_.kernel_node(node, &p); read != CUDA_SUCCESS) return read;
  std::vector<CUlaunchAttribute> attributes;
  for (const CUlaunchAttributeID id : kKept) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    if (driver_.kernel_attribute(node, id, &attribute.value) == CUDA_SUCCESS && is_set(id, attribute.value))
      attributes.push_back(attribute);
  }
  CUlaunchConfig config{};
  config.gridDimX = p.gridDimX;
  config.gridDimY = p.gridDimY;
  config.gridDimZ = p.gridDimZ;
  config.blockDimX = p.blockDimX;
  config.blockDimY = p.blockDimY;
  config.blockDimZ = p.blockDimZ;
  config.sharedMemBytes = p.sharedMemBytes;
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned int>(attributes.size());
  // cuLaunchKernelEx() takes either.
  const CUfunction function = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  return driver_.launch_ex(&config, function, p.kernelParams, p.extra);
}

CUresult UnrolledGraph::start_fill(CUgraphNode node, CUstream stream) const {
  CUDA_MEMSET_NODE_PARAMS p{};
  if (const CUresult read = driver_.fill_node(node, &p); read != CUDA_SUCCESS) return read;
  // With one row the pitch is not read.
  const std::size_t pitch = p.height > 1 ? p.pitch : p.width * p.elementSize;
  switch (p.elementSize) {
    case 1:
      return driver_.fill_bytes(p.dst, pitch, static_cast<unsigned char>(p.value), p.width, p.height, stream);
    case 2:
      return driver_.fill_halves(p.dst, pitch, static_cast<unsigned short>(p.value), p.width, p.height, stream);
    case 4:
      return driver_.fill_words(p.dst, pitch, p.value, p.width, p.height, stream);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace gable::cupti
