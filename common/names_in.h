// What a folder holds. std::filesystem::directory_iterator of GCC 12 ends the process where memory runs out.
#pragma once

#include <dirent.h>

#include <memory>
#include <string>
#include <vector>

namespace gable {

/// The names in the folder, in no order, with "." and "..". None where it can't be read.
inline std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(folder.c_str()), ::closedir);
  std::vector<std::string> names;
  if (!opened) return names;
  while (const dirent* entry = ::readdir(opened.get())) names.emplace_back(entry->d_name);
  return names;
}

}  // namespace gable
