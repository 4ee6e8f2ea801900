// See counter_plugins.h.
#include "perfcounters/sources/counter_plugins.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gable::perf {
namespace {

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
