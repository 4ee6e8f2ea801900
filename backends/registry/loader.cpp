// See loader.h.
#include "backends/registry/loader.h"

#include <gable/error.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace gable::loader {
namespace {

constexpr std::string_view kPrefix = "libgable_";
constexpr std::string_view kSuffix = ".so";
constexpr std::uint64_t kMostAbi = 1'000'000;  // beyond: an address, from an entry without the number

std::filesystem::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&library_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : file.parent_path();
}

std::string backend_of(const std::string& file) {
  if (file.size() <= kPrefix.size() + kSuffix.size() || !file.starts_with(kPrefix) || !file.ends_with(kSuffix))
    return "";
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

[[noreturn]] void refuse(const PluginFile& plugin, const std::string& reason) {
  throw Error(ErrorCode::unavailable, plugin.path.string() + ": " + reason);
}

}  // namespace

SearchPath search_path() {
  SearchPath result;
  // secure_getenv: a privileged program must not load files that its caller names.
  if (const char* variable = secure_getenv("GABLE_BACKEND_PATH")) {
    std::string_view rest = variable;
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
      if (entry.empty()) continue;
      if (entry.front() == '/') {
        result.folders.emplace_back(entry);
      } else {
        result.refused.emplace_back(entry);
      }
    }
  }
  if (const std::filesystem::path own = library_folder(); !own.empty()) {
    result.folders.push_back(own);
    result.folders.push_back(own / "gable");
  }
  return result;
}

std::vector<PluginFile> find_plugins(const SearchPath& path) {
  std::vector<PluginFile> plugins;
  for (const std::filesystem::path& folder : path.folders) {
    std::vector<PluginFile> here;
    std::error_code error;  // a folder that does not exist holds no plugins
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string backend = backend_of(it->path().filename().string());
      if (!backend.empty()) here.push_back({backend, it->path()});
    }
    std::sort(here.begin(), here.end(), [](const auto& a, const auto& b) { return a.backend < b.backend; });
    plugins.insert(plugins.end(), here.begin(), here.end());
  }
  return plugins;
}

std::unique_ptr<Backend> load(const PluginFile& plugin) {
#if !GABLE_SHARED
  // The plugin would bring libgable.so along: a second registry, and classes that this one does not know.
  refuse(plugin, "this program has gable as a static library, which takes no plugins: build it with GABLE_SHARED=ON");
#endif
  void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(ErrorCode::unavailable, reason != nullptr ? reason : plugin.path.string() + ": dlopen failed");
  }
  const auto entry = reinterpret_cast<const PluginEntry* (*)()>(dlsym(library, "gable_plugin"));
  if (entry == nullptr) refuse(plugin, "no entry gable_plugin: this is not a gable plugin");
  const PluginEntry* answer = entry();
  if (answer == nullptr || answer->version == nullptr) refuse(plugin, "its entry gable_plugin gives no version");
  if (std::string_view(answer->version) != GABLE_VERSION_STRING) {
    refuse(plugin, "built for gable " + std::string(answer->version) +
                       "; this is gable " GABLE_VERSION_STRING ": rebuild the plugin");
  }
  if (answer->abi != GABLE_PLUGIN_ABI) {
    refuse(plugin, "built with other headers of gable " GABLE_VERSION_STRING " (its ABI number is " +
                       (answer->abi < kMostAbi ? std::to_string(answer->abi) : "missing") + ", this gable's is " +
                       std::to_string(GABLE_PLUGIN_ABI) + "): rebuild the plugin");
  }
  std::unique_ptr<Backend> backend(answer->make());
  if (backend == nullptr || backend->name() != plugin.backend) {
    refuse(plugin, backend == nullptr ? "it made no backend"
                                      : "it holds the backend '" + backend->name() + "', not '" + plugin.backend + "'");
  }
  return backend;
}

}  // namespace gable::loader
