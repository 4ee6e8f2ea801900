// A CUDA graph as ordinary launches: CUPTI counts those one by one, but not the kernels of a graph.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/cupti/library.h"

namespace gable::cupti {

/// Keeps a clone of a graph, since programs destroy theirs once they have instantiated it.
class UnrolledGraph {
 public:
  /// `graph`: one that an executable graph was just made of.
  UnrolledGraph(const Driver& driver, CUgraph graph);
  ~UnrolledGraph();
  UnrolledGraph(const UnrolledGraph&) = delete;
  UnrolledGraph& operator=(const UnrolledGraph&) = delete;

  /// Why it can't be run; empty if it can.
  const std::string& refusal() const { return refusal_; }

  /// Its kernels, copies, fills and host functions on the stream, one after the other in an order that its edges allow.
  /// Stops at the first that fails.
  CUresult run(CUstream stream) const;

  /// Whether run() has failed after it had started something.
  bool broke_off() const { return broke_off_; }

 private:
  struct Step {
    CUgraphNode node;
    CUgraphNodeType type;
  };
  /// The nodes in an order that the edges allow; nothing if the driver does not tell.
  std::optional<std::vector<CUgraphNode>> ordered_nodes(CUgraph graph) const;
  void append(CUgraph graph);
  void append_node(CUgraphNode node);
  void refuse(const char* reason);
  CUresult start(const Step& step, CUstream stream) const;
  CUresult start_kernel(CUgraphNode node, CUstream stream) const;
  CUresult start_fill(CUgraphNode node, CUstream stream) const;

  const Driver& driver_;
  CUgraph clone_ = nullptr;
  std::vector<Step> steps_;
  std::string refusal_;
  mutable bool broke_off_ = false;
};

/// The numbers 0 to count - 1 such that the first of each edge comes before the second; the least first where the edges
/// leave a choice. Empty if they form a circle.
std::vector<std::size_t> order_of(std::size_t count, const std::vector<std::pair<std::size_t, std::size_t>>& edges);

}  // namespace gable::cupti
