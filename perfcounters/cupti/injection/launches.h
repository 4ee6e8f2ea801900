// The CUDA calls that start kernels, as CUPTI's callbacks show them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "perfcounters/cupti/injection/recording_cost.h"
#include "perfcounters/cupti/library.h"

namespace gable::cupti {

/// A kernel with the shape of its launch.
struct KernelShape {
  std::string name;  ///< as the compiler mangled it
  std::array<int, 3> grid{}, block{};
  std::uint64_t arguments = 0;  ///< Arguments::hash()

  auto operator<=>(const KernelShape&) const = default;
};

/// graph_change: of an executable graph, in the way of read_graph(); graph_step_change: of what is no kernel in it.
enum class Call {
  other,
  launch,
  graph_launch,
  graph_instantiate,
  graph_change,
  graph_step_change,
  graph_destroy,
  begin_capture,
  end_capture
};

/// What a call of the driver does.
Call kind_of(CUpti_CallbackId call);

/// All calls that kind_of() knows.
std::vector<CUpti_CallbackId> known_calls();

/// The kernel of a Call::launch. Empty for launches that can't be tied to one kernel.
std::optional<KernelShape> shape_of(CUpti_CallbackId call, const CUpti_CallbackData& data);

/// Blocks of the kernel of a Call::launch; 0 if they are not known.
std::int64_t blocks_of(CUpti_CallbackId call, const CUpti_CallbackData& data);
std::int64_t blocks_of(const KernelShape& shape);

/// Arguments::hash() of a Call::launch.
std::uint64_t arguments_of(CUpti_CallbackId call, const CUpti_CallbackData& data);

/// An executable graph after a Call::graph_instantiate or Call::graph_change.
struct ReadGraph {
  CUgraphExec exec = nullptr;
  CUgraph graph = nullptr;  ///< what it was made of or updated with; null: changed in a way that does not show
  bool is_known = false;    ///< false: it has conditional nodes, or was changed in a way that does not show
  bool is_changed = false;  ///< by a Call::graph_change
  std::vector<KernelShape> kernels{};  ///< in the order of the graph's nodes
  std::vector<std::uint64_t> nodes{};  ///< CUPTI's numbers of their nodes
  std::int64_t blocks = 0;             ///< of all kernels
  std::uint64_t number = 0;            ///< of names, grids and blocks: the same in another run
};

/// `data`: of a call that has succeeded. Asks the driver and CUPTI, so no lock that a buffer of theirs needs may be
/// held.
ReadGraph read_graph(CUpti_CallbackId call, const CUpti_CallbackData& data);

/// The executable graph of a Call::graph_launch, _change, _step_change or _destroy.
CUgraphExec exec_of(const CUpti_CallbackData& data);

/// The stream of a Call::graph_launch, by a handle that means the same in all calls.
CUstream stream_of(CUpti_CallbackId call, const CUpti_CallbackData& data);

/// CUPTI's numbers of a node and of the one that it is a clone of: instantiating a graph clones its nodes.
struct ClonedNode {
  std::uint64_t node = 0, original = 0;
};
ClonedNode read_clone(const CUpti_GraphData& data);

/// The kernels of executable graphs, from the graphs that they were made of.
class Graphs {
 public:
  void keep(ReadGraph graph);
  void keep(const ClonedNode& clone) { originals_[clone.node] = clone.original; }
  /// The kernels of a Call::graph_launch; null if they are not known.
  const std::vector<KernelShape>* kernels(const CUpti_CallbackData& data) const;
  /// What a Call::graph_launch starts, as far as it is known.
  Launched launched(const CUpti_CallbackData& data) const;
  /// ReadGraph::number of a Call::graph_launch; a graph whose kernels are not known has one as well.
  std::uint64_t number(const CUpti_CallbackData& data) const;
  /// KernelShape::arguments of a node, by the number that CUPTI's records give; 0: not known.
  std::uint64_t arguments(std::uint64_t node) const;

 private:
  const ReadGraph* find(const CUpti_CallbackData& data) const;

  std::unordered_map<CUgraphExec, ReadGraph> graphs_;
  std::unordered_map<std::uint64_t, std::uint64_t> arguments_;  ///< by node
  std::unordered_map<std::uint64_t, std::uint64_t> originals_;  ///< of a clone
};

}  // namespace gable::cupti
