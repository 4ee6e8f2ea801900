// Launches of CUDA graphs become launches of their nodes one by one (unrolled_graph.h), and do nothing themselves
// (empty_graph.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "perfcounters/cupti/injection/empty_graph.h"
#include "perfcounters/cupti/injection/launches.h"
#include "perfcounters/cupti/injection/unrolled_graph.h"

namespace gable::cupti {

/// Thread-safe.
class GraphUnroller {
 public:
  /// After a call that made or changed an executable graph.
  void keep(const ReadGraph& graph);
  /// After one that changed it in a way that does not show, or destroyed it.
  void forget(CUgraphExec exec);
  void context_ends(CUcontext context);

  /// At the begin of each launch of a graph: whether it is a trial of this class, and not the program's.
  bool takes_trial(const CUpti_CallbackData& data) const;

  /// At the begin of a launch: why it can't be unrolled, as what the graph does ("allocates memory"); empty: it can.
  std::string refusal(CUpti_CallbackId call, const CUpti_CallbackData& data);

  /// Unrolls a launch without a refusal. The driver calls back for each launch as for the program's own.
  struct Outcome {
    std::string refusal{};    ///< why it could not be; empty: the launch does nothing any more
    bool ran_partly = false;  ///< the nodes before the one that failed
  };
  Outcome run(CUpti_CallbackId call, const CUpti_CallbackData& data);

 private:
  mutable std::recursive_mutex mutex_;  ///< run() launches, and the driver calls back into takes_trial()
  std::unordered_map<CUgraphExec, std::unique_ptr<UnrolledGraph>> graphs_;
  std::map<CUcontext, std::unique_ptr<EmptyGraph>> empty_;
};

}  // namespace gable::cupti
