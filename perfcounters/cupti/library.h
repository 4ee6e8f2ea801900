// libcupti and libcuda, opened at run time: the functions that the plugin calls, and the checks of what they return.
// The toolkit keeps libcupti in a folder of its own that the loader does not search, so that folder is tried too.
#pragma once

#include <cuda.h>
#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cstddef>
#include <string>

namespace gable::cupti {

struct Functions {
  decltype(&cuptiGetVersion) version;
  decltype(&cuptiGetResultString) result_string;

  decltype(&cuptiProfilerInitialize) profiler_initialize;
  decltype(&cuptiProfilerDeviceSupported) device_supported;
  decltype(&cuptiDeviceGetChipName) chip_name;

  decltype(&cuptiProfilerHostInitialize) host_initialize;
  decltype(&cuptiProfilerHostDeinitialize) host_deinitialize;
  decltype(&cuptiProfilerHostGetBaseMetrics) base_metrics;
  decltype(&cuptiProfilerHostConfigAddMetrics) add_metrics;
  decltype(&cuptiProfilerHostGetConfigImageSize) config_image_size;
  decltype(&cuptiProfilerHostGetConfigImage) config_image;
  decltype(&cuptiProfilerHostGetNumOfPasses) number_of_passes;
  decltype(&cuptiProfilerHostEvaluateToGpuValues) evaluate;

  decltype(&cuptiRangeProfilerEnable) range_enable;
  decltype(&cuptiRangeProfilerDisable) range_disable;
  decltype(&cuptiRangeProfilerGetCounterDataSize) counter_data_size;
  decltype(&cuptiRangeProfilerCounterDataImageInitialize) counter_data_initialize;
  decltype(&cuptiRangeProfilerSetConfig) range_set_config;
  decltype(&cuptiRangeProfilerStart) range_start;
  decltype(&cuptiRangeProfilerStop) range_stop;
  decltype(&cuptiRangeProfilerPushRange) range_push;
  decltype(&cuptiRangeProfilerPopRange) range_pop;
  decltype(&cuptiRangeProfilerDecodeData) range_decode;
  decltype(&cuptiRangeProfilerGetCounterDataInfo) counter_data_info;

  decltype(&cuptiActivityRegisterCallbacks) activity_callbacks;
  decltype(&cuptiActivityEnable) activity_enable;
  decltype(&cuptiActivityDisable) activity_disable;
  decltype(&cuptiActivityFlushAll) activity_flush;
  decltype(&cuptiActivityGetNextRecord) activity_next;
  decltype(&cuptiActivityGetNumDroppedRecords) activity_dropped;
  decltype(&cuptiGetCallbackName) callback_name;

  decltype(&cuptiSubscribe) subscribe;
  decltype(&cuptiEnableCallback) enable_callback;
  decltype(&cuptiGetDeviceId) device_id;
  decltype(&cuptiGetGraphNodeId) graph_node_id;

  std::string name;  ///< "libcupti.so.13 (CUPTI 130001)"
};

struct Driver {
  decltype(&cuInit) init;
  decltype(&cuDeviceGetCount) device_count;
  decltype(&cuDeviceGet) device;
  decltype(&cuDevicePrimaryCtxRetain) retain;
  decltype(&cuDevicePrimaryCtxRelease) release;
  decltype(&cuCtxPushCurrent) push;
  decltype(&cuCtxPopCurrent) pop;
  decltype(&cuCtxSynchronize) synchronize;
  decltype(&cuGetErrorName) error_name;
  decltype(&cuDeviceGetAttribute) attribute;
  decltype(&cuDeviceGetName) device_name;
  decltype(&cuModuleLoadData) load_module;
  decltype(&cuModuleUnload) unload_module;
  decltype(&cuModuleGetFunction) function;
  decltype(&cuMemAlloc) allocate;
  decltype(&cuMemFree) free;
  decltype(&cuMemsetD8) fill;
  decltype(&cuLaunchKernel) launch;
  decltype(&cuFuncGetName) function_name;
  decltype(&cuKernelGetName) kernel_name;
  decltype(&cuFuncGetParamInfo) function_parameter;  ///< null in drivers before CUDA 12.4, as the next one
  decltype(&cuKernelGetParamInfo) kernel_parameter;
  decltype(&cuPointerGetAttribute) pointer_attribute;
  decltype(&cuGraphGetNodes) graph_nodes;
  decltype(&cuGraphNodeGetType) node_type;
  decltype(&cuGraphKernelNodeGetParams) kernel_node;
  decltype(&cuGraphChildGraphNodeGetGraph) child_graph;

  // What it takes to run a graph's nodes one by one.
  decltype(&cuCtxGetCurrent) current;
  decltype(&cuGraphCreate) graph_create;
  decltype(&cuGraphClone) graph_clone;
  decltype(&cuGraphDestroy) graph_destroy;
  decltype(&cuGraphAddEmptyNode) add_empty_node;
  decltype(&cuGraphAddMemsetNode) add_fill_node;
  CUresult(CUDAAPI* graph_edges)(CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*,
                                 std::size_t*);  ///< null in drivers before CUDA 12.3
  CUresult(CUDAAPI* instantiate)(CUgraphExec*, CUgraph, unsigned long long);
  decltype(&cuGraphExecDestroy) exec_destroy;
  decltype(&cuGraphLaunch) graph_launch;
  decltype(&cuGraphKernelNodeGetAttribute) kernel_attribute;
  decltype(&cuGraphMemcpyNodeGetParams) copy_node;
  decltype(&cuGraphMemsetNodeGetParams) fill_node;
  decltype(&cuGraphHostNodeGetParams) host_node;
  decltype(&cuLaunchKernelEx) launch_ex;
  decltype(&cuLaunchHostFunc) launch_host;
  decltype(&cuMemcpy3DAsync) copy;
  decltype(&cuMemcpyDtoH) read;
  decltype(&cuMemsetD2D8Async) fill_bytes;
  decltype(&cuMemsetD2D16Async) fill_halves;
  decltype(&cuMemsetD2D32Async) fill_words;
  decltype(&cuStreamCreate) create_stream;
  decltype(&cuStreamDestroy) destroy_stream;
  decltype(&cuStreamIsCapturing) is_capturing;
  decltype(&cuThreadExchangeStreamCaptureMode) capture_mode;
};

/// libcupti's functions. Throws GpuProfilerError(kNoCupti) with what the loader said.
const Functions& functions();

/// The driver, initialized. Throws GpuProfilerError(kNoDriver).
const Driver& driver();

/// Throws GpuProfilerError with CUPTI's code unless `result` is success. `call` is what was called.
void check(CUptiResult result, const char* call);
/// Throws GpuProfilerError(kDriverCall).
void check(CUresult result, const char* call);

/// A zeroed parameter block of CUPTI with its size set as the header requires.
template <typename Parameters>
Parameters sized(std::size_t size) {
  Parameters parameters{};
  parameters.structSize = size;
  return parameters;
}

}  // namespace gable::cupti
