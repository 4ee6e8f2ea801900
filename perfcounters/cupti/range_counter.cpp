// See range_counter.h.
#include "perfcounters/cupti/range_counter.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "perfcounters/cupti/context.h"
#include "perfcounters/cupti/library.h"
#include "perfcounters/cupti/range_profiler.h"

namespace gable::cupti {
namespace {

using perf::GpuProfilerError;

// Most kernels per run where each is counted separately. Beyond this CUPTI drops ranges silently.
constexpr std::size_t kMaxKernels = 512;

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

/// For destructors, which run while another error is under way.
template <typename End>
void end_quietly(const End& end) {
  try {
    end();
  } catch (const GpuProfilerError&) {
  }
}

/// Counts between start() and stop(); the destructor stops as well.
class Pass {
 public:
  explicit Pass(RangeProfiler& profiler) : profiler_(profiler) { profiler_.start(); }
  ~Pass() {
    if (open_) end_quietly([this] { profiler_.stop(); });
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// Whether this was the last pass.
  bool stop() {
    open_ = false;
    return profiler_.stop();
  }

 private:
  RangeProfiler& profiler_;
  bool open_ = true;
};

/// A named range inside a pass.
class Range {
 public:
  Range(RangeProfiler& profiler, const std::string& name) : profiler_(profiler) { profiler_.push(name); }
  ~Range() {
    if (open_) end_quietly([this] { profiler_.pop(); });
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  void pop() {
    open_ = false;
    profiler_.pop();
  }

 private:
  RangeProfiler& profiler_;
  bool open_ = true;
};

/// One pass over the work; true if it was the last one needed.
bool run_pass(RangeProfiler& profiler, const perf::CountRequest& request) {
  if (request.each_kernel) {
    if (request.before) request.before();
    check(driver().synchronize(), "cuCtxSynchronize");
    Pass pass(profiler);
    request.run();
    check(driver().synchronize(), "cuCtxSynchronize");
    return pass.stop();
  }
  Pass pass(profiler);
  for (int i = 0; i < request.repetitions; ++i) {
    if (request.before) request.before();
    check(driver().synchronize(), "cuCtxSynchronize");
    Range range(profiler, std::to_string(i));
    request.run();
    check(driver().synchronize(), "cuCtxSynchronize");
    range.pop();
  }
  return pass.stop();
}

void check_number(std::size_t ranges, const perf::CountRequest& request) {
  const auto wanted = static_cast<std::size_t>(request.repetitions);
  if (!request.each_kernel && ranges != wanted) {
    throw GpuProfilerError(perf::kUntrusted, "CUPTI returned " + std::to_string(ranges) + " ranges of " +
                                                 std::to_string(wanted) + " that were counted");
  }
  if (request.each_kernel && ranges >= kMaxKernels) {
    throw GpuProfilerError(perf::kUntrusted, "a run has " + std::to_string(kMaxKernels) +
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
  const RangeProfiler profiler(context.get());
}

perf::Counted count_ranges(int gpu, const MetricSet& set, const perf::CountRequest& request) {
  const PrimaryContext context(device_of(gpu));
  const Current current(context);
  const std::vector<std::string>& metrics = set.metrics();
  const std::size_t planned = set.passes();
  const std::size_t ranges = request.each_kernel ? kMaxKernels : static_cast<std::size_t>(request.repetitions);
  RangeProfiler profiler(context.get());
  std::vector<std::uint8_t> image = profiler.counter_image(metrics, ranges);
  profiler.configure(set.config(), image, {.range = request.each_kernel ? CUPTI_AutoRange : CUPTI_UserRange}, ranges);
  perf::Counted counted;
  do {
    ++counted.passes;
    if (static_cast<std::size_t>(counted.passes) > planned) {
      throw GpuProfilerError(perf::kUntrusted, "CUPTI wants more than the " + std::to_string(planned) +
                                                   " passes that it planned: did each run launch the same kernels?");
    }
  } while (!run_pass(profiler, request));
  const std::size_t found = profiler.decode(image);
  check_number(found, request);
  for (std::size_t i = 0; i < found; ++i) counted.ranges.push_back(set.values(image, i));
  return counted;
}

}  // namespace gable::cupti
