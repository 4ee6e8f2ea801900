// Finds and opens plugins: libgable_<backend>.so in the folders of GABLE_BACKEND_PATH, beside libgable, and in the
// folder `gable` beside libgable, where the installation puts them. Never in the current folder.
#pragma once

#include <gable/backend.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace gable::loader {

struct SearchPath {
  std::vector<std::filesystem::path> folders;
  std::vector<std::string> refused;  ///< entries of GABLE_BACKEND_PATH that are not absolute paths
  std::vector<std::string> missing;  ///< entries of GABLE_BACKEND_PATH that are not folders
};

SearchPath search_path();

struct PluginFile {
  std::string backend;
  std::filesystem::path path;
};

/// In search order; a backend can appear more than once.
std::vector<PluginFile> find_plugins(const SearchPath& path);

/// Throws Error(unavailable) with the reason: the file is not regular or is cut off, the dynamic loader's own message,
/// a missing entry, or a different version or ABI number. A loaded plugin stays loaded.
std::unique_ptr<Backend> load(const PluginFile& plugin);

}  // namespace gable::loader
