// See context.h.
#include "perfcounters/cupti/context.h"

#include <string>

#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {

CUdevice device_of(int gpu) {
  int count = 0;
  check(driver().device_count(&count), "cuDeviceGetCount");
  if (gpu < 0 || gpu >= count) {
    throw perf::GpuProfilerError(
        perf::kNoGpu, "there is no GPU " + std::to_string(gpu) + "; this process sees " + std::to_string(count));
  }
  CUdevice device = 0;
  check(driver().device(&device, gpu), "cuDeviceGet");
  return device;
}

PrimaryContext::PrimaryContext(CUdevice device) : device_(device) {
  check(driver().retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

PrimaryContext::~PrimaryContext() { driver().release(device_); }

Current::Current(const PrimaryContext& context) { check(driver().push(context.get()), "cuCtxPushCurrent"); }

Current::~Current() {
  CUcontext former = nullptr;
  driver().pop(&former);
}

}  // namespace gable::cupti
