// Takes a CUDA graph's place in a launch, so that the launch does nothing: the callback at its begin exchanges the
// parameter that the driver reads afterwards. CUPTI does not promise that the driver reads it again (580 does), so this
// is tried out first with a graph of its own.
#pragma once

#include "perfcounters/cupti/library.h"

namespace gable::cupti {

class EmptyGraph {
 public:
  EmptyGraph() = default;
  EmptyGraph(const EmptyGraph&) = delete;
  EmptyGraph& operator=(const EmptyGraph&) = delete;

  /// Whether launches can be emptied in the current context; tried at the first call.
  bool works();

  /// Whether the launch is the one of the trial; then it has been emptied. To be asked first at the begin of each
  /// launch.
  bool takes_trial(const CUpti_CallbackData& data) const;

  /// At the begin of a launch of a graph, once works() was true: nothing is launched.
  void take_place(const CUpti_CallbackData& data) const;

 private:
  bool try_out();

  CUgraphExec empty_ = nullptr;  // never destroyed: it may be running at the context's end
  CUgraphExec trial_ = nullptr;
  bool tried_ = false, works_ = false;
};

}  // namespace gable::cupti
