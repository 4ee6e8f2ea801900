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

Driver load_driver() {
  std::string opened;
  void* library = open_first({"libcuda.so.1"}, perf::kNoDriver, opened);
  Driver d{};
  const auto get = [&](const char* name, auto& function) { find(library, name, perf::kNoDriver, function); };
  get("cuInit", d.init);
  get("cuDeviceGetCount", d.device_count);
  get("cuDeviceGet", d.device);
  get("cuDevicePrimaryCtxRetain", d.retain);
  get("cuDevicePrimaryCtxRelease_v2", d.release);
  get("cuCtxPushCurrent_v2", d.push);
  get("cuCtxPopCurrent_v2", d.pop);
  get("cuCtxSynchronize", d.synchronize);
  get("cuGetErrorName", d.error_name);
  get("cuDeviceGetAttribute", d.attribute);
  get("cuDeviceGetName", d.device_name);
  get("cuModuleLoadData", d.load_module);
  get("cuModuleUnload", d.unload_module);
  get("cuModuleGetFunction", d.function);
  get("cuMemAlloc_v2", d.allocate);
  get("cuMemFree_v2", d.free);
  get("cuMemsetD8_v2", d.fill);
  get("cuLaunchKernel", d.launch);
  get("cuFuncGetName", d.function_name);
  get("cuKernelGetName", d.kernel_name);
  d.function_parameter = reinterpret_cast<decltype(d.function_parameter)>(dlsym(library, "cuFuncGetParamInfo"));
  d.kernel_parameter = reinterpret_cast<decltype(d.kernel_parameter)>(dlsym(library, "cuKernelGetParamInfo"));
  get("cuPointerGetAttribute", d.pointer_attribute);
  get("cuGraphGetNodes", d.graph_nodes);
  get("cuGraphNodeGetType", d.node_type);
  get("cuGraphKernelNodeGetParams_v2", d.kernel_node);
  get("cuGraphChildGraphNodeGetGraph", d.child_graph);
  get("cuCtxGetCurrent", d.current);
  get("cuGraphCreate", d.graph_create);
  get("cuGraphClone", d.graph_clone);
  get("cuGraphDestroy", d.graph_destroy);
  get("cuGraphAddEmptyNode", d.add_empty_node);
  get("cuGraphAddMemsetNode", d.add_fill_node);
  d.graph_edges = reinterpret_cast<decltype(d.graph_edges)>(dlsym(library, "cuGraphGetEdges_v2"));
  get("cuGraphInstantiateWithFlags", d.instantiate);
  get("cuGraphExecDestroy", d.exec_destroy);
  get("cuGraphLaunch", d.graph_launch);
  get("cuGraphKernelNodeGetAttribute", d.kernel_attribute);
  get("cuGraphMemcpyNodeGetParams", d.copy_node);
  get("cuGraphMemsetNodeGetParams", d.fill_node);
  get("cuGraphHostNodeGetParams", d.host_node);
  get("cuLaunchKernelEx", d.launch_ex);
  get("cuLaunchHostFunc", d.launch_host);
  get("cuMemcpy3DAsync_v2", d.copy);
  get("cuMemcpyDtoH_v2", d.read);
  get("cuMemsetD2D8Async", d.fill_bytes);
  get("cuMemsetD2D16Async", d.fill_halves);
  get("cuMemsetD2D32Async", d.fill_words);
  get("cuStreamCreate", d.create_stream);
  get("cuStreamDestroy_v2", d.destroy_stream);
  get("cuStreamIsCapturing", d.is_capturing);
  get("cuThreadExchangeStreamCaptureMode", d.capture_mode);
  if (const CUresult result = d.init(0); result != CUDA_SUCCESS) {
    const char* name = nullptr;
    d.error_name(result, &name);
    throw GpuProfilerError(result == CUDA_ERROR_NO_DEVICE ? perf::kNoGpu : perf::kNoDriver,
                           std::string("cuInit: ") + (name != nullptr ? name : "unknown error"));
  }
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
