// The entry that CUDA calls when it is initialised in a process where CUDA_INJECTION64_PATH names this library. It
// never disturbs the program: whatever fails becomes a line in the session's folder.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "perfcounters/cupti/context.h"
#include "perfcounters/cupti/injection/counted_context.h"
#include "perfcounters/cupti/injection/kernel_counter.h"
#include "perfcounters/cupti/injection/kernel_timer.h"
#include "perfcounters/cupti/injection/launches.h"
#include "perfcounters/cupti/injection/regions.h"
#include "perfcounters/cupti/injection/session.h"
#include "perfcounters/cupti/library.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

/// What runs in this process. Never destroyed: CUDA calls back during the process's end.
struct Injected {
  explicit Injected(SessionRequest asked) : request(std::move(asked)), file(request.folder) {}

  const SessionRequest request;
  SessionFile file;
  const pid_t pid = getpid();
  std::unique_ptr<KernelCounter> counter{};  ///< null when it times
  bool ended = false;                        ///< the process is past its end, or a child that was forked
};

Injected* injected = nullptr;

/// Asked at every launch, so it makes no system call.
bool alive() { return injected != nullptr && !injected->ended; }

void forked() { injected->ended = true; }

/// Runs `task`; a failure becomes a line of the session.
template <typename Task>
void guarded(const Task& task) {
  try {
    task();
  } catch (const perf::GpuProfilerError& error) {
    injected->file.fail(error.code(), error.what());
  } catch (const std::exception& error) {
    injected->file.note(std::string("the kernels of this process: ") + error.what());
  }
}

void learn_gpu(CUcontext context) {
  std::uint32_t gpu = 0;
  check(functions().device_id(context, &gpu), "cuptiGetDeviceId");
  char name[256] = "";
  check(driver().device_name(name, sizeof name, device_of(static_cast<int>(gpu))), "cuDeviceGetName");
  note_gpu(static_cast<int>(gpu), name);
}

void resource(CUpti_CallbackId what, const CUpti_ResourceData& data) {
  if (what == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) {
    if (injected->counter) {
      injected->counter->context_created(data.context);
    } else {
      learn_gpu(data.context);
    }
  }
  if (what == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) {
    if (injected->counter) {
      injected->counter->context_ends(data.context);
    } else {
      note_context_end(data.context);
    }
  }
  if (what == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED && !injected->counter) {
    const auto* graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor);
    if (graph != nullptr && graph->nodeType == CU_GRAPH_NODE_TYPE_KERNEL) note_clone(*graph);
  }
}

void timed_call(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  const bool enters = data.callbackSite == CUPTI_API_ENTER;
  switch (kind_of(call)) {
    case Call::launch:
      if (enters) note_launch(call, data);
      break;
    case Call::graph_launch:
      if (enters) note_graph_launch(call, data);
      break;
    case Call::graph_instantiate:
    case Call::graph_change:
      if (!enters && *static_cast<const CUresult*>(data.functionReturnValue) == CUDA_SUCCESS) note_graph(call, data);
      break;
    case Call::graph_step_change:
    case Call::graph_destroy:
      if (!enters) note_graph_end(data);
      break;
    default:
      break;
  }
}

void api_call(CUpti_CallbackId call, const CUpti_CallbackData& data) {
  const bool enters = data.callbackSite == CUPTI_API_ENTER;
  if (!injected->counter) {
    timed_call(call, data);
    return;
  }
  if (enters) {
    injected->counter->before(call, data);
  } else {
    injected->counter->after(call, data);
  }
}

void CUPTIAPI called_back(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (!alive()) return;
  guarded([&] {
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) resource(id, *static_cast<const CUpti_ResourceData*>(data));
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) api_call(id, *static_cast<const CUpti_CallbackData*>(data));
  });
}

CUpti_SubscriberHandle subscriber = nullptr;

/// Whether called_back() is to see a call of the driver.
bool is_of_use(CUpti_CallbackId call) {
  if (injected->counter) return true;
  switch (kind_of(call)) {
    case Call::begin_capture:
    case Call::end_capture:
      return false;
    case Call::graph_destroy:
    case Call::graph_step_change:
      return injected->request.mode == SessionRequest::Mode::alone;
    default:
      return true;
  }
}

void subscribe() {
  check(functions().subscribe(&subscriber, called_back, nullptr), "cuptiSubscribe");
  for (const CUpti_CallbackIdResource what :
       {CUPTI_CBID_RESOURCE_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
        CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED}) {
    if (what == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED && injected->counter) continue;
    check(functions().enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, what), "cuptiEnableCallback");
  }
  for (const CUpti_CallbackId call : known_calls()) {
    if (!is_of_use(call)) continue;
    check(functions().enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, call), "cuptiEnableCallback");
  }
}

/// The driver's calls are seen no more.
void end_calls() {
  for (const CUpti_CallbackId call : known_calls()) {
    if (is_of_use(call)) functions().enable_callback(0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, call);
  }
  functions().enable_callback(0, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
}

void start() {
  functions();
  find_regions();
  if (injected->request.mode == SessionRequest::Mode::counters) {
    std::vector<std::string> metrics = injected->request.metrics;
    metrics.emplace_back(kBlocks);
    injected->counter = std::make_unique<KernelCounter>(injected->file, std::move(metrics), injected->request.calls);
  } else {
    start_timing(injected->file,
                 injected->request.mode == SessionRequest::Mode::alone ? Timing::alone : Timing::together,
                 injected->request.mode == SessionRequest::Mode::time ? end_calls : nullptr);
  }
  subscribe();
}

void finish() {
  if (!alive() || getpid() != injected->pid) return;  // also a child that was forked without libc
  guarded([] {
    if (injected->counter) {
      injected->counter->finish(true);
    } else {
      finish_timing();
    }
  });
  injected->ended = true;
}

}  // namespace
}  // namespace gable::cupti

/// Called once per process by the driver. CUDA goes on whatever it returns.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using namespace gable::cupti;
  try {
    SessionRequest request = session_request();
    if (injected != nullptr || request.mode == SessionRequest::Mode::none) return 1;
    injected = new Injected(std::move(request));
    pthread_atfork(nullptr, nullptr, forked);
    guarded(start);
    injected->file.write({}, false);
    std::atexit(finish);
    std::at_quick_exit(finish);
  } catch (...) {  // out of memory: the program is to find that out by itself
  }
  return 1;
}
