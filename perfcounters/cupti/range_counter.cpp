// See range_counter.h.
#include "perfcounters/cupti/range_counter.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "perfcounters/cupti/context.h"
#include "perfcounters/cupti/host.h"
#include "perfcounters/cupti/library.h"

namespace gable::cupti {
namespace {

using perf::GpuProfilerError;

// Most kernels per run where each is counted separately. Beyond this CUPTI drops ranges silently.
constexpr std::size_t kMostKernels = 512;

void check_support(CUdevice device) {
  auto parameters = sized<CUpti_Profiler_DeviceSupported_Params>(CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE);
  parameters.cuDevice = device;
  parameters.api = CUPTI_PROFILER_RANGE_PROFILING;
  check(functions().device_supported(&parameters), "cuptiProfilerDeviceSupported");
  if (parameters.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return;
  const auto refused = [](CUpti_Profiler_Support_Level level) {
    return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED || level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
  };
  const char* call = "cuptiProfilerDeviceSupported";
  if (refused(parameters.vGpu)) check(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED, call);
  if (refused(parameters.confidentialCompute)) check(CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED, call);
  if (refused(parameters.cmp)) check(CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED, call);
  if (refused(parameters.sli)) check(CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED, call);
  if (refused(parameters.wsl)) check(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED, call);
  check(CUPTI_ERROR_NOT_COMPATIBLE, call);
}

void initialize_profiler() {
  static const bool done = [] {
    auto parameters = sized<CUpti_Profiler_Initialize_Params>(CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
    check(functions().profiler_initialize(&parameters), "cuptiProfilerInitialize");
    return true;
  }();
  static_cast<void>(done);
}

/// Enables the range profiler on a context; the destructor disables it.
class Enabled {
 public:
  explicit Enabled(CUcontext context) {
    auto parameters = sized<CUpti_RangeProfiler_Enable_Params>(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
    parameters.ctx = context;
    check(functions().range_enable(&parameters), "cuptiRangeProfilerEnable");
    object_ = parameters.pRangeProfilerObject;
  }
  ~Enabled() {
    auto parameters = sized<CUpti_RangeProfiler_Disable_Params>(CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
    parameters.pRangeProfilerObject = object_;
    functions().range_disable(&parameters);
  }
  Enabled(const Enabled&) = delete;
  Enabled& operator=(const Enabled&) = delete;

  CUpti_RangeProfiler_Object* get() const { return object_; }

 private:
  CUpti_RangeProfiler_Object* object_ = nullptr;
};

/// Counts between start() and stop(); the destructor stops as well.
class Pass {
 public:
  explicit Pass(CUpti_RangeProfiler_Object* object) : object_(object) {
    auto parameters = sized<CUpti_RangeProfiler_Start_Params>(CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
    parameters.pRangeProfilerObject = object_;
    check(functions().range_start(&parameters), "cuptiRangeProfilerStart");
  }
  ~Pass() {
    if (!open_) return;
    auto parameters = stop_parameters();
    functions().range_stop(&parameters);
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// Whether this was the last pass.
  bool stop() {
    open_ = false;
    auto parameters = stop_parameters();
    check(functions().range_stop(&parameters), "cuptiRangeProfilerStop");
    return parameters.isAllPassSubmitted != 0;
  }

 private:
  CUpti_RangeProfiler_Stop_Params stop_parameters() const {
    auto parameters = sized<CUpti_RangeProfiler_Stop_Params>(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
    parameters.pRangeProfilerObject = object_;
    return parameters;
  }

  CUpti_RangeProfiler_Object* object_;
  bool open_ = true;
};

/// A named range inside a pass.
class Range {
 public:
  Range(CUpti_RangeProfiler_Object* object, const std::string& name) : object_(object) {
    auto parameters = sized<CUpti_RangeProfiler_PushRange_Params>(CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE);
    parameters.pRangeProfilerObject = object_;
    parameters.pRangeName = name.c_str();
    check(functions().range_push(&parameters), "cuptiRangeProfilerPushRange");
  }
  ~Range() {
    if (!open_) return;
    auto parameters = pop_parameters();
    functions().range_pop(&parameters);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  void pop() {
    open_ = false;
    auto parameters = pop_parameters();
    check(functions().range_pop(&parameters), "cuptiRangeProfilerPopRange");
  }

 private:
  CUpti_RangeProfiler_PopRange_Params pop_parameters() const {
    auto parameters = sized<CUpti_RangeProfiler_PopRange_Params>(CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE);
    parameters.pRangeProfilerObject = object_;
    return parameters;
  }

  CUpti_RangeProfiler_Object* object_;
  bool open_ = true;
};

std::vector<std::uint8_t> counter_image(const Enabled& enabled, const std::vector<std::string>& metrics,
                                        std::size_t ranges) {
  std::vector<const char*> names = pointers(metrics);
  auto size =
      sized<CUpti_RangeProfiler_GetCounterDataSize_Params>(CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
  size.pRangeProfilerObject = enabled.get();
  size.pMetricNames = names.data();
  size.numMetrics = names.size();
  size.maxNumOfRanges = ranges;
  size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(ranges);
  check(functions().counter_data_size(&size), "cuptiRangeProfilerGetCounterDataSize");
  std::vector<std::uint8_t> image(size.counterDataSize);
  auto initialize = sized<CUpti_RangeProfiler_CounterDataImage_Initialize_Params>(
      CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  initialize.pRangeProfilerObject = enabled.get();
  initialize.pCounterData = image.data();
  initialize.counterDataSize = image.size();
  check(functions().counter_data_initialize(&initialize), "cuptiRangeProfilerCounterDataImageInitialize");
  return image;
}

void set_config(const Enabled& enabled, const std::vector<std::uint8_t>& config, std::vector<std::uint8_t>& image,
                bool each_kernel, std::size_t ranges) {
  auto parameters = sized<CUpti_RangeProfiler_SetConfig_Params>(CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = enabled.get();
  parameters.pConfig = config.data();
  parameters.configSize = config.size();
  parameters.pCounterDataImage = image.data();
  parameters.counterDataImageSize = image.size();
  parameters.range = each_kernel ? CUPTI_AutoRange : CUPTI_UserRange;
  parameters.replayMode = CUPTI_UserReplay;
  parameters.maxRangesPerPass = ranges;
  parameters.numNestingLevels = 1;
  parameters.minNestingLevel = 1;
  parameters.targetNestingLevel = 1;
  check(functions().range_set_config(&parameters), "cuptiRangeProfilerSetConfig");
}

/// One pass over the work; true if it was the last one needed.
bool run_pass(const Enabled& enabled, const perf::CountRequest& request) {
  if (request.each_kernel) {
    if (request.before) request.before();
    check(driver().synchronize(), "cuCtxSynchronize");
    Pass pass(enabled.get());
    request.run();
    check(driver().synchronize(), "cuCtxSynchronize");
    return pass.stop();
  }
  Pass pass(enabled.get());
  for (int i = 0; i < request.repetitions; ++i) {
    if (request.before) request.before();
    check(driver().synchronize(), "cuCtxSynchronize");
    Range range(enabled.get(), std::to_string(i));
    request.run();
    check(driver().synchronize(), "cuCtxSynchronize");
    range.pop();
  }
  return pass.stop();
}

/// Decodes the counts into the image; returns the number of ranges.
std::size_t decode(const Enabled& enabled, const std::vector<std::uint8_t>& image) {
  auto parameters = sized<CUpti_RangeProfiler_DecodeData_Params>(CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = enabled.get();
  check(functions().range_decode(&parameters), "cuptiRangeProfilerDecodeData");
  if (parameters.numOfRangeDropped > 0) {
    throw GpuProfilerError(perf::kUntrusted,
                           "CUPTI dropped " + std::to_string(parameters.numOfRangeDropped) + " ranges");
  }
  auto info =
      sized<CUpti_RangeProfiler_GetCounterDataInfo_Params>(CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE);
  info.pCounterDataImage = image.data();
  info.counterDataImageSize = image.size();
  check(functions().counter_data_info(&info), "cuptiRangeProfilerGetCounterDataInfo");
  return info.numTotalRanges;
}

void check_number(std::size_t ranges, const perf::CountRequest& request) {
  const auto wanted = static_cast<std::size_t>(request.repetitions);
  if (!request.each_kernel && ranges != wanted) {
    throw GpuProfilerError(perf::kUntrusted, "CUPTI returned " + std::to_string(ranges) + " ranges of " +
                                                 std::to_string(wanted) + " that were counted");
  }
  if (request.each_kernel && ranges >= kMostKernels) {
    throw GpuProfilerError(perf::kUntrusted, "a run has " + std::to_string(kMostKernels) +
                                                 " kernels or more, beyond which CUPTI drops them");
  }
}

}  // namespace

std::string chip_of(int gpu) {
  functions();  // report a missing library before a missing driver
  const CUdevice device = device_of(gpu);
  initialize_profiler();
  check_support(device);
  auto parameters = sized<CUpti_Device_GetChipName_Params>(CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  parameters.deviceIndex = static_cast<std::size_t>(gpu);
  check(functions().chip_name(&parameters), "cuptiDeviceGetChipName");
  return parameters.pChipName;
}

void arm_and_disarm(int gpu) {
  chip_of(gpu);
  const PrimaryContext context(device_of(gpu));
  const Current current(context);
  const Enabled enabled(context.get());
}

perf::Counted count_ranges(int gpu, const std::string& chip, const perf::CountRequest& request) {
  const PrimaryContext context(device_of(gpu));
  const Current current(context);
  Host host(chip);
  host.add(request.metrics);
  std::vector<std::uint8_t> config = host.config_image();
  const std::size_t planned = passes(config);
  const std::size_t ranges = request.each_kernel ? kMostKernels : static_cast<std::size_t>(request.repetitions);
  const Enabled enabled(context.get());
  std::vector<std::uint8_t> image = counter_image(enabled, request.metrics, ranges);
  set_config(enabled, config, image, request.each_kernel, ranges);
  perf::Counted counted;
  do {
    ++counted.passes;
    if (static_cast<std::size_t>(counted.passes) > planned) {
      throw GpuProfilerError(perf::kUntrusted, "CUPTI wants more than the " + std::to_string(planned) +
                                                   " passes that it planned: did each run launch the same kernels?");
    }
  } while (!run_pass(enabled, request));
  const std::size_t found = decode(enabled, image);
  check_number(found, request);
  for (std::size_t i = 0; i < found; ++i) counted.ranges.push_back(host.evaluate(image, i, request.metrics));
  return counted;
}

}  // namespace gable::cupti
