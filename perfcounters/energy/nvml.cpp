// NVML, opened at run time: it comes with NVIDIA's driver. Its indices are not CUDA's (CUDA_VISIBLE_DEVICES), so a GPU
// is found by the PCI address that the driver names.
#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "perfcounters/energy/energy.h"

namespace gable::perf {
namespace {

using NvmlDevice = void*;
constexpr int kNoPermission = 4, kNotSupported = 3;  // nvmlReturn_t
constexpr int kNoSuchGpu = 6;                        // NVML_ERROR_NOT_FOUND

struct Nvml {
  int (*init)();
  int (*by_bus_id)(const char*, NvmlDevice*);
  int (*energy)(NvmlDevice, unsigned long long*);
  const char* (*error_string)(int);
  int (*cu_init)(unsigned);
  int (*cu_bus_id)(char*, int, int);

  int read(int gpu, unsigned long long& millijoules) const {
    char bus_id[32] = {};
    if (cu_bus_id(bus_id, sizeof bus_id, gpu) != 0) return kNoSuchGpu;
    NvmlDevice device = nullptr;
    if (const int code = by_bus_id(bus_id, &device); code != 0) return code;
    return energy(device, &millijoules);
  }
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

NvmlReader open_nvml() {
  const std::string cure = "install NVIDIA's driver with its NVML (libnvidia-ml.so.1)";
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.reason = "no NVML", .cure = cure};
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {.reason = "no CUDA driver (libcuda.so.1)", .cure = cure};
  const auto nvml = std::make_shared<Nvml>();
  const bool complete = find(library, "nvmlInit_v2", nvml->init) &&
                        find(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml->by_bus_id) &&
                        find(library, "nvmlDeviceGetTotalEnergyConsumption", nvml->energy) &&
                        find(library, "nvmlErrorString", nvml->error_string) && find(driver, "cuInit", nvml->cu_init) &&
                        find(driver, "cuDeviceGetPCIBusId", nvml->cu_bus_id);
  if (!complete) return {.reason = "this NVML has no counter of energy", .cure = "update NVIDIA's driver"};
  if (const int code = nvml->init(); code != 0)
    return {.reason = std::string("nvmlInit: ") + nvml->error_string(code), .cure = cure};
  if (const int code = nvml->cu_init(0); code != 0)
    return {.reason = "cuInit: error " + std::to_string(code), .cure = cure};
  return {.read = [nvml](int gpu, unsigned long long& millijoules) { return nvml->read(gpu, millijoules); },
          .error_text = [nvml](int code) { return std::string(nvml->error_string(code)); }};
}

EnergySource nvml_energy(int gpu, const NvmlReader& nvml) {
  EnergySource source{.by = "nvml", .reason = nvml.reason, .cure = nvml.cure, .note = "the whole board"};
  if (!nvml.read) return source;
  const auto joules = [gpu, nvml] {
    unsigned long long millijoules = 0;
    const int code = nvml.read(gpu, millijoules);
    if (code != 0) throw std::runtime_error("nvmlDeviceGetTotalEnergyConsumption: " + nvml.error_text(code));
    return static_cast<double>(millijoules) * 1e-3;
  };
  unsigned long long millijoules = 0;
  if (const int code = nvml.read(gpu, millijoules); code != 0) {
    source.reason = "nvmlDeviceGetTotalEnergyConsumption: " + nvml.error_text(code);
    if (code == kNotSupported) source.cure = "NVML counts energy from Volta on, of whole GPUs (no MIG, no vGPU)";
    if (code == kNoPermission) source.cure = "run as root";
    return source;
  }
  source.counters.push_back({"GPU " + std::to_string(gpu), joules, 0});
  return source;
}

}  // namespace gable::perf
