// The path coverage of the loaded CUDA plugin, which has its own copy of the kernels and of the table of paths.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>
#include <vector>

namespace gable {

struct PluginPath {
  std::string path;
  bool supported;  // by the GPU
  bool ran;
};

/// Where the loader mapped libgable_cuda.so from; empty where it is not loaded.
inline std::string loaded_cuda_plugin() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        const std::string_view path = info->dlpi_name;
        if (path.ends_with("/libgable_cuda.so")) *static_cast<std::string*>(to) = path;
        return 0;
      },
      &found);
  return found;
}

using PluginCoverage = bool (*)(int device, void (*take)(void*, const char*, bool, bool), void* context);

/// The plugin's function; null where the plugin or its symbol is missing. Valid while the plugin stays loaded.
inline PluginCoverage plugin_coverage_function() {
  void* const plugin = dlopen(loaded_cuda_plugin().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (plugin == nullptr) return nullptr;
  const auto coverage = reinterpret_cast<PluginCoverage>(dlsym(plugin, "gable_cuda_path_coverage"));
  dlclose(plugin);  // the loader's own reference keeps it
  return coverage;
}

/// Of GPU 0; empty where there is none.
inline std::vector<PluginPath> plugin_coverage() {
  std::vector<PluginPath> paths;
  if (const PluginCoverage coverage = plugin_coverage_function()) {
    coverage(
        0,
        [](void* to, const char* path, bool supported, bool ran) {
          static_cast<std::vector<PluginPath>*>(to)->push_back({path, supported, ran});
        },
        &paths);
  }
  return paths;
}

}  // namespace gable
