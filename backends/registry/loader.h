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
  std::vector<std::string> refused;  ///< entries of GABLE_BACKEND_PATH that are not absolute
  std::vector<std::string> missing;  ///< those that are no folders
};

SearchPath search_path();

struct PluginFile {
  std::string backend;
  std::filesystem::path path;
};

/// In search order; a backend can appear more than once.
std::vector<PluginFile> find_plugins(const SearchPath& path);

/// Throws Error(unavailable) with the reason: no whole regular file, the dynamic loader's own words, a missing entry,
/// or the two versions or ABI numbers that differ. A loaded plugin stays loaded.
std::unique_ptr<Backend> load(const PluginFile& plugin);

}  // namespace gable::loader
