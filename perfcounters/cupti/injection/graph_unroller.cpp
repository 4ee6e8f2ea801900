// See graph_unroller.h.
#include "perfcounters/cupti/injection/graph_unroller.h"

#include <algorithm>

#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

/// What is launched into such a stream becomes part of another graph.
bool is_captured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().is_capturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

void GraphUnroller::keep(const ReadGraph& graph) {
  const std::lock_guard lock(mutex_);
  graphs_.erase(graph.exec);
  if (graph.is_known) graphs_[graph.exec] = std::make_unique<UnrolledGraph>(driver(), graph.graph);
}

void GraphUnroller::forget(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  graphs_.erase(exec);
}

void GraphUnroller::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  empty_.erase(context);
}

bool GraphUnroller::takes_trial(const CUpti_CallbackData& data) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(empty_.begin(), empty_.end(), [&](const auto& one) { return one.second->takes_trial(data); });
}

std::string GraphUnroller::refusal(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  const std::lock_guard lock(mutex_);
  const auto found = graphs_.find(exec_of(data));
  if (found == graphs_.end()) return "was changed after it had been made";
  if (!found->second->refusal().empty()) return found->second->refusal();
  if (is_captured(stream_of(call, data))) return "was launched while another one was captured";
  std::unique_ptr<EmptyGraph>& empty = empty_[data.context];
  if (!empty) empty = std::make_unique<EmptyGraph>();
  try {
    return empty->works() ? "" : "can't be exchanged at its launch with this driver";
  } catch (const perf::GpuProfilerError& error) {
    return std::string("can't be exchanged at its launch: ") + error.what();
  }
}

GraphUnroller::Outcome GraphUnroller::run(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  const std::lock_guard lock(mutex_);
  const UnrolledGraph& graph = *graphs_.at(exec_of(data));
  const CUresult result = graph.run(stream_of(call, data));
  if (result == CUDA_SUCCESS) {
    empty_.at(data.context)->take_place(data);
    return {};
  }
  Outcome outcome{"can't be launched node by node (CUDA's error " + std::to_string(result) + ")", graph.broke_off()};
  graphs_.erase(exec_of(data));
  return outcome;
}

}  // namespace gable::cupti
