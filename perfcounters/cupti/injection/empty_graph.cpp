// See empty_graph.h.
#include "perfcounters/cupti/injection/empty_graph.h"

#include <cstdint>

#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

/// The parameters of cuGraphLaunch() and cuGraphLaunch_ptsz().
cuGraphLaunch_params& parameters_of(const CUpti_CallbackData& data) {
  return *const_cast<cuGraphLaunch_params*>(static_cast<const cuGraphLaunch_params*>(data.functionParams));
}

/// Lets this thread allocate while a stream is being captured.
struct Relaxed {
  Relaxed() { driver().capture_mode(&mode); }
  ~Relaxed() { driver().capture_mode(&mode); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
};

CUgraphExec instantiated(CUgraph graph) {
  CUgraphExec exec = nullptr;
  check(driver().instantiate(&exec, graph, 0), "cuGraphInstantiate");
  driver().graph_destroy(graph);
  return exec;
}

}  // namespace

bool EmptyGraph::works() {
  if (!tried_) {
    tried_ = true;
    const Relaxed relaxed;
    works_ = try_out();
  }
  return works_;
}

bool EmptyGraph::takes_trial(const CUpti_CallbackData& data) const {
  if (trial_ == nullptr || parameters_of(data).hGraph != trial_) return false;
  take_place(data);
  return true;
}

void EmptyGraph::take_place(const CUpti_CallbackData& data) const { parameters_of(data).hGraph = empty_; }

/// A graph that fills a word with ones is launched; the word has to stay 0.
bool EmptyGraph::try_out() {
  const Driver& d = driver();
  CUcontext context = nullptr;
  check(d.current(&context), "cuCtxGetCurrent");
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  check(d.graph_create(&graph, 0), "cuGraphCreate");
  check(d.add_empty_node(&node, graph, nullptr, 0), "cuGraphAddEmptyNode");
  empty_ = instantiated(graph);
  CUdeviceptr word = 0;
  check(d.allocate(&word, sizeof(std::uint32_t)), "cuMemAlloc");
  check(d.fill(word, 0, sizeof(std::uint32_t)), "cuMemsetD8");
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = word;
  fill.value = 1;
  fill.elementSize = sizeof(std::uint32_t);
  fill.width = fill.height = 1;
  check(d.graph_create(&graph, 0), "cuGraphCreate");
  check(d.add_fill_node(&node, graph, nullptr, 0, &fill, context), "cuGraphAddMemsetNode");
  trial_ = instantiated(graph);
  CUstream stream = nullptr;
  check(d.create_stream(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(d.graph_launch(trial_, stream), "cuGraphLaunch");
  check(d.synchronize(), "cuCtxSynchronize");
  std::uint32_t value = 1;
  check(d.read(&value, word, sizeof value), "cuMemcpyDtoH");
  d.destroy_stream(stream);
  d.free(word);
  d.exec_destroy(trial_);
  trial_ = nullptr;
  return value == 0;
}

}  // namespace gable::cupti
