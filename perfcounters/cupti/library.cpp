// See library.h.
#include "perfcounters/cupti/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

using perf::GpuProfilerError;

// The range profiler came with CUDA 12.6, whose CUPTI counts itself 24.
constexpr std::uint32_t kMinVersion = 24;

std::vector<std::string> candidates() {
  // The major version of the build's headers first: their structures are the ones used here.
  std::vector<std::string> names;
  if (CUDA_VERSION >= 13000) names.emplace_back("libcupti.so.13");
  names.emplace_back("libcupti.so.12");
  names.emplace_back("libcupti.so.13");
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    // secure_getenv: a privileged program must not load a library that its caller chose.
    if (const char* folder = secure_getenv(variable)) roots.emplace_back(folder);
  }
  roots.insert(roots.end(), {"/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-12"});
  std::vector<std::string> files = names;
  for (const std::string& root : roots) {
    for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/", "/targets/x86_64-linux/lib/"}) {
      for (const std::string& name : names) files.push_back(root + folder + name);
    }
  }
  return files;
}

/// Opens the first library that loads and never closes it: CUPTI hooks into the driver.
void* open_first(const std::vector<std::string>& files, int code, std::string& opened) {
  std::string first_error;
  for (const std::string& file : files) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      opened = file;
      return library;
    }
    const char* error = dlerror();
    if (first_error.empty()) first_error = error != nullptr ? error : file + ": dlopen failed";
  }
  throw GpuProfilerError(code, first_error);
}

template <typename Function>
void find(void* library, const char* name, int code, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw GpuProfilerError(code, std::string("the library has no ") + name + ": it is too old");
}

Functions load_functions() {
  Functions f{};
  void* library = open_first(candidates(), perf::kNoCupti, f.name);
  const auto get = [&](const char* name, auto& function) { find(library, name, perf::kNoCupti, function); };
  get("cuptiGetVersion", f.version);
  get("cuptiGetResultString", f.result_string);
  std::uint32_t version = 0;
  if (f.version(&version) != CUPTI_SUCCESS) throw GpuProfilerError(perf::kNoCupti, f.name + ": cuptiGetVersion failed");
  f.name += " (CUPTI " + std::to_string(version) + ")";
  if (version < kMinVersion) {
    throw GpuProfilerError(perf::kNoCupti, f.name + " has no range profiler; this needs that of CUDA 12.6 or later");
  }
  get("cuptiProfilerInitialize", f.profiler_initialize);
  get("cuptiProfilerDeviceSupported", f.device_supported);
  get("cuptiDeviceGetChipName", f.chip_name);
  get("cuptiProfilerHostInitialize", f.host_initialize);
  get("cuptiProfilerHostDeinitialize", f.host_deinitialize);
  get("cuptiProfilerHostGetBaseMetrics", f.base_metrics);
  get("cuptiProfilerHostConfigAddMetrics", f.add_metrics);
  get("cuptiProfilerHostGetConfigImageSize", f.config_image_size);
  get("cuptiProfilerHostGetConfigImage", f.config_image);
  get("cuptiProfilerHostGetNumOfPasses", f.number_of_passes);
  get("cuptiProfilerHostEvaluateToGpuValues", f.evaluate);
  get("cuptiRangeProfilerEnable", f.range_enable);
  get("cuptiRangeProfilerDisable", f.range_disable);
  get("cuptiRangeProfilerGetCounterDataSize", f.counter_data_size);
  get("cuptiRangeProfilerCounterDataImageInitialize", f.counter_data_initialize);
  get("cuptiRangeProfilerSetConfig", f.range_set_config);
  get("cuptiRangeProfilerStart", f.range_start);
  get("cuptiRangeProfilerStop", f.range_stop);
  get("cuptiRangeProfilerPushRange", f.range_push);
  get("cuptiRangeProfilerPopRange", f.range_pop);
  get("cuptiRangeProfilerDecodeData", f.range_decode);
  get("cuptiRangeProfilerGetCounterDataInfo", f.counter_data_info);
  get("cuptiActivityRegisterCallbacks", f.activity_callbacks);
  get("cuptiActivityEnable", f.activity_enable);
  get("cuptiActivityDisable", f.activity_disable);
  get("cuptiActivityFlushAll", f.activity_flush);
  get("cuptiActivityGetNextRecord", f.activity_next);
  get("cuptiActivityGetNumDroppedRecords", f.activity_dropped);
  get("cuptiGetCallbackName", f.callback_name);
  get("cuptiSubscribe", f.subscribe);
  get("cuptiEnableCallback", f.enable_callback);
  get("cuptiGetDeviceId", f.device_id);
  get("cuptiGetGraphNodeId", f.graph_node_id);
  return f;
}

/// The driver's functions by name.
struct DriverLibrary {
  void* handle;

  template <typename Function>
  void find(const char* name, Function& function) const {
    cupti::find(handle, name, perf::kNoDriver, function);
  }
  /// Null with a driver that is too old to have it.
  template <typename Function>
  void find_new(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(handle, name));
  }
};

void find_basics(const DriverLibrary& library, Driver& d) {
  library.find("cuInit", d.init);
  library.find("cuDeviceGetCount", d.device_count);
  library.find("cuDeviceGet", d.device);
  library.find("cuDevicePrimaryCtxRetain", d.retain);
  library.find("cuDevicePrimaryCtxRelease_v2", d.release);
  library.find("cuCtxPushCurrent_v2", d.push);
  library.find("cuCtxPopCurrent_v2", d.pop);
  library.find("cuCtxSynchronize", d.synchronize);
  library.find("cuGetErrorName", d.error_name);
  library.find("cuDeviceGetAttribute", d.attribute);
  library.find("cuDeviceGetName", d.device_name);
  library.find("cuModuleLoadData", d.load_module);
  library.find("cuModuleUnload", d.unload_module);
  library.find("cuModuleGetFunction", d.function);
  library.find("cuMemAlloc_v2", d.allocate);
  library.find("cuMemFree_v2", d.free);
  library.find("cuMemsetD8_v2", d.fill);
  library.find("cuLaunchKernel", d.launch);
  library.find("cuFuncGetName", d.function_name);
  library.find("cuKernelGetName", d.kernel_name);
  library.find_new("cuFuncGetParamInfo", d.function_parameter);
  library.find_new("cuKernelGetParamInfo", d.kernel_parameter);
  library.find("cuPointerGetAttribute", d.pointer_attribute);
  library.find("cuCtxGetCurrent", d.current);
  library.find("cuMemcpyDtoH_v2", d.read);
  library.find("cuStreamCreate", d.create_stream);
  library.find("cuStreamDestroy_v2", d.destroy_stream);
  library.find("cuStreamIsCapturing", d.is_capturing);
  library.find("cuThreadExchangeStreamCaptureMode", d.capture_mode);
}

/// What graphs are read by, and what runs their nodes one by one.
void find_graphs(const DriverLibrary& library, Driver& d) {
  library.find("cuGraphGetNodes", d.graph_nodes);
  library.find("cuGraphNodeGetType", d.node_type);
  library.find("cuGraphKernelNodeGetParams_v2", d.kernel_node);
  library.find("cuGraphChildGraphNodeGetGraph", d.child_graph);
  library.find("cuGraphCreate", d.graph_create);
  library.find("cuGraphClone", d.graph_clone);
  library.find("cuGraphDestroy", d.graph_destroy);
  library.find("cuGraphAddEmptyNode", d.add_empty_node);
  library.find("cuGraphAddMemsetNode", d.add_fill_node);
  library.find_new("cuGraphGetEdges_v2", d.graph_edges);
  library.find("cuGraphInstantiateWithFlags", d.instantiate);
  library.find("cuGraphExecDestroy", d.exec_destroy);
  library.find("cuGraphLaunch", d.graph_launch);
  library.find("cuGraphKernelNodeGetAttribute", d.kernel_attribute);
  library.find("cuGraphMemcpyNodeGetParams", d.copy_node);
  library.find("cuGraphMemsetNodeGetParams", d.fill_node);
  library.find("cuGraphHostNodeGetParams", d.host_node);
  library.find("cuLaunchKernelEx", d.launch_ex);
  library.find("cuLaunchHostFunc", d.launch_host);
  library.find("cuMemcpy3DAsync_v2", d.copy);
  library.find("cuMemsetD2D8Async", d.fill_bytes);
  library.find("cuMemsetD2D16Async", d.fill_halves);
  library.find("cuMemsetD2D32Async", d.fill_words);
}

void initialise(const Driver& d) {
  const CUresult result = d.init(0);
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  d.error_name(result, &name);
  throw GpuProfilerError(result == CUDA_ERROR_NO_DEVICE ? perf::kNoGpu : perf::kNoDriver,
                         std::string("cuInit: ") + (name != nullptr ? name : "unknown error"));
}

Driver load_driver() {
  std::string opened;
  const DriverLibrary library{open_first({"libcuda.so.1"}, perf::kNoDriver, opened)};
  Driver d{};
  find_basics(library, d);
  find_graphs(library, d);
  initialise(d);
  return d;
}

}  // namespace

const Functions& functions() {
  static const Functions f = load_functions();
  return f;
}

const Driver& driver() {
  static const Driver d = load_driver();
  return d;
}

void check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* name = nullptr;
  if (functions().result_string(result, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown result";
  throw GpuProfilerError(result, std::string(call) + ": " + name + " (" + std::to_string(result) + ")");
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver().error_name(result, &name);
  throw GpuProfilerError(perf::kDriverCall, std::string(call) + ": " + (name != nullptr ? name : "unknown error"));
}

}  // namespace gable::cupti
