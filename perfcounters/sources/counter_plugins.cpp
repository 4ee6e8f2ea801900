// See counter_plugins.h.
#include "perfcounters/sources/counter_plugins.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gable::perf {
namespace {

/// The folder of the shared library that this code is a part of (libgable_measure.so in a program of others); empty in
/// the command itself.
std::filesystem::path own_library_folder(const std::filesystem::path& program) {
  Dl_info info{};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&find_counter_plugin), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return error || file == program ? std::filesystem::path() : file.parent_path();
}

std::vector<std::filesystem::path> plugin_folders() {
  std::vector<std::filesystem::path> folders;
  // secure_getenv: a privileged program must not load a library that its caller chose.
  if (const char* variable = secure_getenv("GABLE_BACKEND_PATH")) {
    std::string_view rest = variable;
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
      if (!entry.empty() && entry.front() == '/') folders.push_back(std::filesystem::path(entry) / "counters");
    }
  }
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return folders;
  if (const std::filesystem::path own = own_library_folder(program); !own.empty()) {
    folders.push_back(own / "counters");            // the build tree
    folders.push_back(own / "gable" / "counters");  // installed
    return folders;
  }
  const std::filesystem::path beside = program.parent_path() / GABLE_LIBDIR_FROM_BINDIR;
  folders.push_back(program.parent_path().parent_path() / "lib" / "counters");  // the build tree
  folders.push_back(beside / "gable" / "counters");                             // installed
  return folders;
}

}  // namespace

CounterPlugin find_counter_plugin(const char* name) {
  CounterPlugin plugin;
  for (const std::filesystem::path& folder : plugin_folders()) {
    std::error_code error;
    if (std::filesystem::exists(folder / name, error)) {
      plugin.file = (folder / name).lexically_normal().string();
      return plugin;
    }
    plugin.looked += (plugin.looked.empty() ? "" : ", ") + folder.lexically_normal().string();
  }
  return plugin;
}

}  // namespace gable::perf
