// Output files that appear whole or not at all: each is written beside its destination and then renamed over it.
// It then has the destination's permissions and links, symbolic and hard.
#pragma once

#include <gable/error.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace gable::bench {

/// An empty file in the destination's folder, and none there of processes that were killed. The destructor removes it
/// unless it was renamed. Errors throw std::filesystem::filesystem_error with the path and the system's reason.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& beside);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::filesystem::path path() const { return path_; }
  /// The parts one after the other; replaces what the file had.
  void write(const std::vector<std::string_view>& parts) const;
  void rename_to(const std::filesystem::path& destination);

 private:
  TemporaryFile() = default;

  std::string path_;
  int descriptor_ = -1;
};

/// A TemporaryFile with these parts, renamed to `destination`. Throws std::filesystem::filesystem_error; `destination`
/// is then unchanged.
void write_whole(const std::filesystem::path& destination, const std::vector<std::string_view>& parts);

/// For a file that a user named: check_writable(), then write_whole() to the file behind symbolic links. Throws
/// Error(code_of()) with the system's reason; `path` is then unchanged.
void write_file(const std::string& path, const std::vector<std::string_view>& parts);

/// The name by which read_whole() takes standard input. A file of this name is "./-".
inline constexpr std::string_view kStandardInput = "-";

/// All of the file or pipe. Throws Error(invalid_argument) that begins with `what` and its path ("study 'a.json'") if
/// it is a folder, can't be read (with the system's reason), or holds more than 256 MiB: a device may have no end.
std::string read_whole(const std::string& what, const std::string& path);

/// device_failure where a disk is full or fails, or descriptors or memory run out; else invalid_argument: what the user
/// named can't be written.
ErrorCode code_of(const std::error_code& error);

/// The checks of write_file() that need no data: `path` is no pipe, device or folder and no file without permission,
/// files can be made in its folder, and there is room for a small one. For commands that work for minutes before they
/// write.
/// `instead` ends the message about what is no file: what would do as well.
void check_writable(const std::string& path, const std::string& instead = {});

/// For files of one command, empty names aside. Throws Error(invalid_argument) where two are the same file.
void check_distinct(const std::vector<std::string>& paths);

}  // namespace gable::bench
