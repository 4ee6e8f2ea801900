// CUDA graphs as ordinary launches, against a driver that writes down what it is asked to do.
#include "perfcounters/cupti/injection/unrolled_graph.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

using gable::cupti::Driver;
using gable::cupti::order_of;
using gable::cupti::UnrolledGraph;

namespace {

struct FakeNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  int child = 0;             // graph of a child node
  unsigned int blocks = 0;   // of a kernel
  unsigned int cluster = 0;  // of a kernel
  bool is_updatable = false;
};

struct FakeGraph {
  std::vector<int> nodes{};
  std::vector<std::pair<int, int>> edges{};
};

/// Graphs and nodes by their handles, which are small numbers; a clone of graph g is 100 + g, its node n 100 + n.
struct FakeDriver {
  std::map<int, FakeNode> nodes{};
  std::map<int, FakeGraph> graphs{};
  std::vector<std::string> calls{};
  int clones = 0;
  int failing_node = -1;
};

FakeDriver* fake = nullptr;

template <typename Handle>
Handle handle(int number) {
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(number));
}
template <typename Handle>
int number(Handle handle) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle));
}
int original(int number) { return number % 100; }
const FakeNode& node_of(CUgraphNode node) { return fake->nodes.at(original(number(node))); }

CUresult started(const std::string& what, int node, CUstream stream) {
  fake->calls.push_back(what + std::to_string(node) + " on " + std::to_string(number(stream)));
  return original(node) == fake->failing_node ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

Driver fake_driver() {
  Driver d{};
  d.graph_clone = [](CUgraph* clone, CUgraph graph) {
    ++fake->clones;
    *clone = handle<CUgraph>(100 + number(graph));
    return CUDA_SUCCESS;
  };
  d.graph_destroy = [](CUgraph) {
    --fake->clones;
    return CUDA_SUCCESS;
  };
  d.graph_nodes = [](CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
    const std::vector<int>& all = fake->graphs.at(original(number(graph))).nodes;
    *count = all.size();
    const int offset = number(graph) - original(number(graph));
    if (nodes != nullptr)
      std::transform(all.begin(), all.end(), nodes, [&](int n) { return handle<CUgraphNode>(n + offset); });
    return CUDA_SUCCESS;
  };
  d.graph_edges = [](CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData*, std::size_t* count) {
    const auto& all = fake->graphs.at(original(number(graph))).edges;
    *count = all.size();
    const int offset = number(graph) - original(number(graph));
    for (std::size_t i = 0; from != nullptr && i < all.size(); ++i) {
      from[i] = handle<CUgraphNode>(all[i].first + offset);
      to[i] = handle<CUgraphNode>(all[i].second + offset);
    }
    return CUDA_SUCCESS;
  };
  d.node_type = [](CUgraphNode node, CUgraphNodeType* type) {
    *type = node_of(node).type;
    return CUDA_SUCCESS;
  };
  d.child_graph = [](CUgraphNode node, CUgraph* graph) {
    *graph = handle<CUgraph>(node_of(node).child + number(node) - original(number(node)));
    return CUDA_SUCCESS;
  };
  d.kernel_attribute = [](CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue* value) {
    *value = {};
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) value->clusterDim.x = node_of(node).cluster;
    if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
      value->deviceUpdatableKernelNode.deviceUpdatable = node_of(node).is_updatable ? 1 : 0;
    return CUDA_SUCCESS;
  };
  d.kernel_node = [](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
    *parameters = {};
    parameters->kern = handle<CUkernel>(number(node));
    parameters->gridDimX = node_of(node).blocks;
    return CUDA_SUCCESS;
  };
  d.launch_ex = [](const CUlaunchConfig* config, CUfunction function, void**, void**) {
    std::string what = "kernel of " + std::to_string(config->gridDimX) + " blocks ";
    for (unsigned int i = 0; i < config->numAttrs; ++i)
      what += "in clusters of " + std::to_string(config->attrs[i].value.clusterDim.x) + " ";
    return started(what, number(function), config->hStream);
  };
  d.copy_node = [](CUgraphNode node, CUDA_MEMCPY3D* parameters) {
    *parameters = {};
    parameters->Height = static_cast<std::size_t>(number(node));
    return CUDA_SUCCESS;
  };
  d.copy = [](const CUDA_MEMCPY3D* parameters, CUstream stream) {
    return started("copy ", static_cast<int>(parameters->Height), stream);
  };
  d.host_node = [](CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
    *parameters = {nullptr, node};
    return CUDA_SUCCESS;
  };
  d.launch_host = [](CUstream stream, CUhostFn, void* data) {
    return started("host ", number(static_cast<CUgraphNode>(data)), stream);
  };
  d.fill_node = [](CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
    *parameters = {};
    parameters->dst = static_cast<CUdeviceptr>(number(node));
    parameters->elementSize = 2;
    parameters->width = 30;
    parameters->height = 1;
    return CUDA_SUCCESS;
  };
  d.fill_halves = [](CUdeviceptr to, std::size_t pitch, unsigned short, std::size_t, std::size_t, CUstream stream) {
    return started("fill with a pitch of " + std::to_string(pitch) + " ", static_cast<int>(to), stream);
  };
  return d;
}

struct UsesFake {
  explicit UsesFake(FakeDriver& driver) { fake = &driver; }
  ~UsesFake() { fake = nullptr; }
};

FakeDriver with_one(FakeNode node) {
  FakeDriver driver;
  driver.nodes[1] = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .blocks = 4};
  driver.nodes[2] = node;
  driver.graphs[1] = {{1, 2}, {{1, 2}}};
  return driver;
}

}  // namespace

TEST_CASE("an order that edges allow, or none for a circle") {
  using Places = std::vector<std::size_t>;
  CHECK(order_of(0, {}) == Places{});
  CHECK(order_of(3, {}) == Places{0, 1, 2});
  CHECK(order_of(4, {{3, 0}, {0, 1}, {3, 2}}) == Places{3, 0, 1, 2});
  CHECK(order_of(3, {{0, 1}, {1, 2}, {2, 1}}) == Places{});
}

TEST_CASE("a graph's nodes one by one: in the order of the edges, children at their place, from a clone") {
  FakeDriver world;
  const UsesFake use(world);
  world.nodes[1] = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .blocks = 7};
  world.nodes[2] = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
  world.nodes[3] = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = 2};
  world.nodes[4] = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
  world.nodes[5] = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .blocks = 8, .cluster = 2};
  world.nodes[6] = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
  world.nodes[7] = {.type = CU_GRAPH_NODE_TYPE_HOST};
  world.graphs[1] = {{1, 2, 3, 4, 7}, {{2, 1}, {1, 4}, {4, 3}, {3, 7}}};
  world.graphs[2] = {{5, 6}, {{6, 5}}};
  const Driver driver = fake_driver();
  {
    const UnrolledGraph graph(driver, handle<CUgraph>(1));
    CHECK(graph.refusal() == "");
    CHECK(world.clones == 1);
    CHECK(graph.run(handle<CUstream>(9)) == CUDA_SUCCESS);
    CHECK(world.calls == std::vector<std::string>{"fill with a pitch of 60 102 on 9", "kernel of 7 blocks 101 on 9",
                                                  "copy 106 on 9", "kernel of 8 blocks in clusters of 2 105 on 9",
                                                  "host 107 on 9"});
    CHECK(!graph.broke_off());
  }
  CHECK(world.clones == 0);
}

TEST_CASE("a graph that can't be run node by node is refused before anything ran, with the reason") {
  const Driver driver = fake_driver();
  const std::pair<FakeNode, std::string> refused[] = {
      {{.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC}, "allocates memory"},
      {{.type = CU_GRAPH_NODE_TYPE_CONDITIONAL}, "has conditional nodes"},
      {{.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD}, "has events"},
      {{.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT}, "waits for others"},
      {{.type = CU_GRAPH_NODE_TYPE_KERNEL, .blocks = 1, .is_updatable = true}, "is changed by its kernels"}};
  for (const auto& [node, reason] : refused) {
    FakeDriver world = with_one(node);
    const UsesFake use(world);
    const UnrolledGraph graph(driver, handle<CUgraph>(1));
    CHECK(graph.refusal() == reason);
    CHECK(world.clones == 0);
  }
  FakeDriver world = with_one({.type = CU_GRAPH_NODE_TYPE_EMPTY});
  const UsesFake use(world);
  Driver old = driver;
  old.graph_edges = nullptr;
  CHECK(UnrolledGraph(old, handle<CUgraph>(1)).refusal() == "can't be read by this driver");
  Driver refusing = driver;
  refusing.graph_clone = [](CUgraph*, CUgraph) { return CUDA_ERROR_NOT_SUPPORTED; };
  CHECK(UnrolledGraph(refusing, handle<CUgraph>(1)).refusal() == "can't be cloned");
}

TEST_CASE("a node that the driver refuses: whether something ran before is known") {
  const Driver driver = fake_driver();
  for (const int failing : {1, 2}) {
    FakeDriver world = with_one({.type = CU_GRAPH_NODE_TYPE_MEMCPY});
    const UsesFake use(world);
    world.failing_node = failing;
    const UnrolledGraph graph(driver, handle<CUgraph>(1));
    CHECK(graph.run(nullptr) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(graph.broke_off() == (failing == 2));
    CHECK(world.calls.size() == static_cast<std::size_t>(failing));
  }
}
