// See gpus.h. The library stays open, since CUDA's runtime would open it next.
#include "perfcounters/machine/gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace gable::perf {

GpuCount count_gpus() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {.reason = "there is no NVIDIA driver (libcuda.so.1)"};
  const auto initialize = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (initialize == nullptr || get_count == nullptr) return {.reason = "libcuda.so.1 is no NVIDIA driver"};
  GpuCount gpus;
  int code = initialize(0);
  if (code == 0) code = get_count(&gpus.count);
  if (code != 0) return {.reason = fmt::format("the driver finds no GPU (error {})", code)};
  if (gpus.count == 0) gpus.reason = "the driver finds no GPU";
  return gpus;
}

}  // namespace gable::perf
