// See choice_identity.h.
#include "backends/registry/choice_identity.h"

#include <gable/abi.h>
#include <gable/version.h>

#include <dlfcn.h>
#include <omp.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

namespace gable {
namespace {

/// A rebuilt library may have different kernels.
std::string stamp_of(const char* file) {
  struct stat status {};
  if (file == nullptr || stat(file, &status) != 0) return "?";
  return std::to_string(status.st_size) + "," + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

std::string stamp_of_libgable() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&choice_identity), &info) == 0) return "?";
  return stamp_of(info.dli_fname);
}

/// A GPU's name contains the CUDA version of its driver, which many drivers share.
std::string gpu_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

/// Host devices compute with OpenMP's threads unless ?threads= says how many.
std::string uri_of(const AutoCandidate& one) {
  DeviceUri uri = parse_device_uri(one.device->info().uri);
  if (one.device->info().memory.kind == Memory::Kind::host && !one.staged) {
    uri.options.emplace("threads", std::to_string(omp_get_max_threads()));
  }
  return to_string(uri) + (one.staged ? " staged" : "");
}

}  // namespace

/// Virtual machines give different CPUs one name.
std::string cpu_identity() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (const char* field : {"cpu family", "model\t", "model name", "stepping", "cache size"}) {
      if (line.starts_with(field)) text += line.substr(std::min(line.size(), line.find(':') + 1));
    }
  }
  return text;
}

std::string choice_identity(const std::vector<AutoCandidate>& candidates) {
  std::string text = "gable " GABLE_VERSION_STRING " abi " + std::to_string(GABLE_PLUGIN_ABI) + " " +
                     stamp_of_libgable() + "; cpu" + cpu_identity() + "; " + gpu_driver();
  for (const AutoCandidate& one : candidates) {
    const DeviceInfo& info = one.device->info();
    text += "; " + uri_of(one) + " = " + info.name;
    if (!info.library.empty()) text += " " + stamp_of(info.library.c_str());
  }
  return text;
}

}  // namespace gable
