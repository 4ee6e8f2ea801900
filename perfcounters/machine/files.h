// Small reads of sysfs, procfs and cgroup files, where a missing file is not an error; and temporary folders.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace gable::perf {

/// Nothing if the file is missing or empty.
std::optional<std::string> first_line(const std::string& path);

/// The value in the first line "key : value" or "key=value" of a text file; empty if there is none.
std::string value_of(const std::string& path, const std::string& key, char separator);

/// "48K", "1024K", "32M", "4096" -> bytes; 0 if it is not a number.
std::size_t parse_size(const std::string& text);

/// A folder of its own below the system's folder for temporary files, removed by the destructor. It is locked (flock)
/// for as long as its process lives, and the next one of its name removes those of killed processes. Throws
/// std::runtime_error where none can be made.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name);  ///< of the folder; a random end is added
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace gable::perf
