// Files that appear whole or not at all: written beside their destination, then renamed over it.
#pragma once

#include <filesystem>
#include <string_view>

namespace gable::bench::report {

// An empty file in the destination's folder, removed at the end unless it was renamed. Errors throw
// std::filesystem::filesystem_error with the path and the system's reason.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& beside);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view content) const;
  void rename_to(const std::filesystem::path& destination);

 private:
  std::filesystem::path path_;
};

void write_whole(const std::filesystem::path& destination, std::string_view content);

}  // namespace gable::bench::report
