// See gpu_profiler.h: the search for the plugin, and the words for what can go wrong.
#include "perfcounters/sources/gpu_profiler.h"

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <string_view>

#include "perfcounters/sources/counter_plugins.h"

namespace gable::perf {
namespace {

constexpr const char* kPlugin = "libgable_cupti.so";

std::filesystem::path find_plugin() {
  const CounterPlugin plugin = find_counter_plugin(kPlugin);
  if (plugin.file.empty()) throw GpuProfilerError(kNoPlugin, std::string(kPlugin) + " is not in " + plugin.looked);
  return plugin.file;
}

GpuProfiler* open_plugin() {
  const std::filesystem::path file = find_plugin();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw GpuProfilerError(kNoPlugin, reason != nullptr ? reason : file.string() + ": dlopen failed");
  }
  const auto entry = reinterpret_cast<const GpuProfilerEntry* (*)()>(dlsym(library, "gable_cupti_plugin"));
  if (entry == nullptr) throw GpuProfilerError(kNoPlugin, file.string() + ": has no entry gable_cupti_plugin");
  const GpuProfilerEntry* answer = entry();
  if (answer == nullptr || answer->version == nullptr || std::string_view(answer->version) != GABLE_EXACT_VERSION) {
    throw GpuProfilerError(kNoPlugin, file.string() + ": built for gable " +
                                          (answer == nullptr || answer->version == nullptr ? "?" : answer->version) +
                                          "; this is gable " GABLE_EXACT_VERSION);
  }
  return answer->make();
}

std::string cure_for(int code) {
  switch (code) {
    case kNoPlugin:
      return "build gable where CUPTI's headers are (the CUDA toolkit, extras/CUPTI); the plugin of the same build";
    case kNoCupti:
      return "install CUPTI 12.6 or later (part of the CUDA toolkit) and add its folder (extras/CUPTI/lib64) to "
             "LD_LIBRARY_PATH";
    case kNoDriver:
      return "install the NVIDIA driver on a machine with an NVIDIA GPU";
    case kNoGpu:
      return "name a GPU that `gable info` lists, and see that CUDA_VISIBLE_DEVICES does not hide it";
    case kUntrusted:
      return "run without CUDA graphs, with fewer kernels at a time; profile with ncu if it stays so";
    case kWrongOrder:
      return "count and trace one after the other";
    case kNoMetric:
      return "ask for what `gable info` says that this chip counts";
    case kDriverCall:
      return "see that the work runs without counters first";
    case 26:
      return "end the other profiler (ncu, nsys, DCGM's profiling, another gable) that uses this GPU's counters; "
             "of a program's processes that run at once, one has them";
    case 33:
      return "profile on the bare metal, or in a virtual machine that has the whole GPU (passthrough)";
    case 35:
      return "run as root, give the program CAP_SYS_ADMIN or CAP_PERFMON, or load the driver with "
             "NVreg_RestrictProfilingToAdminUsers=0 (/etc/modprobe.d, then reload it)";
    case 39:
      return "run without ncu, nsys or another profiler around this process: only one may listen to CUDA";
    case 40:
      return "ask the host's administrator to allow profiling for this virtual GPU (pciPassthru.cfg.enable_profiling)";
    case 41:
      return "turn the GPU's confidential computing mode off, or to its devtools mode";
    case 42:
      return "use a GPU that is no mining processor";
    case 43:
      return "use a GPU that is not cut by MIG, or an instance with the counters of the whole GPU";
    case 44:
      return "turn SLI off";
    case 45:
      return "profile under Linux instead of WSL";
    case 14:
      return "use a GPU of compute capability 7.5 or later, and a CUPTI that is not newer than the driver";
    case 46:
      return "use a CUPTI that is as new as this GPU";
    default:
      return "look the code up in cupti_result.h; a CUPTI of the driver's own CUDA version is the safest";
  }
}

std::string meaning_of(int code) {
  switch (code) {
    case 14:
      return "this device or configuration has no profiling interface";
    case 26:
      return "another profiler has the counters";
    case 33:
      return "the GPU is virtual and shows no counters";
    case 35:
      return "the driver lets only administrators read GPU counters (ERR_NVGPUCTRPERM)";
    case 39:
      return "another profiler listens to CUDA in this process already";
    case 40:
      return "the hypervisor does not let this virtual GPU be profiled";
    case 41:
      return "the GPU is in confidential computing mode";
    case 42:
      return "mining processors have no counters";
    case 43:
      return "this MIG instance can't be profiled";
    case 44:
      return "GPUs in SLI can't be profiled";
    case 45:
      return "profiling is not supported under WSL";
    case 46:
      return "this CUPTI does not know the chip";
    default:
      return "";
  }
}

}  // namespace

GpuFailure explain_gpu_failure(int code, const std::string& what) {
  const std::string meaning = meaning_of(code);
  return {meaning.empty() ? what : meaning + " (" + what + ")", cure_for(code)};
}

GpuProfiler& gpu_profiler() {
  static GpuProfiler* const profiler = open_plugin();
  return *profiler;
}

}  // namespace gable::perf
