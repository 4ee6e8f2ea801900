// The CUDA calls that start kernels, as CUPTI's callbacks show them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "perfcounters/cupti/library.h"

namespace gable::cupti {

/// A kernel with the shape of its launch.
struct KernelShape {
  std::string name;  ///< as the compiler mangled it
  std::array<int, 3> grid{}, block{};

  auto operator<=>(const KernelShape&) const = default;
};

enum class Call { other, launch, graph_launch, graph_instantiate, graph_change, begin_capture, end_capture };

/// What a call of the driver does.
Call kind_of(CUpti_CallbackId call);

/// All calls that kind_of() knows.
std::vector<CUpti_CallbackId> known_calls();

/// The kernel of a Call::launch. Empty for launches that can't be tied to one kernel.
std::optional<KernelShape> shape_of(CUpti_CallbackId call, const CUpti_CallbackData& data);

/// The kernels of executable graphs, from the graphs that they were made of.
class Graphs {
 public:
  /// A Call::graph_instantiate or Call::graph_change that has succeeded.
  void learn(CUpti_CallbackId call, const CUpti_CallbackData& data);
  /// The kernels of a Call::graph_launch in the order of the graph's nodes; null if they are not known.
  const std::vector<KernelShape>* kernels(const CUpti_CallbackData& data) const;

 private:
  std::unordered_map<CUgraphExec, std::vector<KernelShape>> kernels_;
};

}  // namespace gable::cupti
