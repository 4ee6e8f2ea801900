// See files.h. Renaming within one folder is atomic on POSIX; nothing is synced, so a power cut may lose the file.
#include "bench/common/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gable/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace gable::bench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, fmt::format("output file '{}': {}", path, reason));
}

[[noreturn]] void fail_errno(const std::string& path) { fail(path, std::strerror(errno)); }

/// Removes the temporary file unless it was renamed.
struct TemporaryFile {
  std::string path;
  int descriptor = -1;
  bool kept = false;

  ~TemporaryFile() {
    if (descriptor >= 0) ::close(descriptor);
    if (!kept) ::unlink(path.c_str());
  }
};

void write_all(int descriptor, std::string_view part, const std::string& path) {
  while (!part.empty()) {
    const ssize_t written = ::write(descriptor, part.data(), part.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path);
    part.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// The file behind symbolic links, so that a link stays one.
fs::path target_of(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  if (error) fail(path, error.message());
  return target;
}

}  // namespace

void check_writable(const std::string& path) {
  if (path.empty()) fail(path, "the name is empty");
  const fs::path target = target_of(path);
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail(path, "is a folder or a device; name a file");
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) fail(path, fmt::format("the folder '{}' does not exist", folder.string()));
  if (::access(folder.c_str(), W_OK) != 0) fail_errno(path);
}

void write_file(const std::string& path, const std::vector<std::string_view>& parts) {
  check_writable(path);
  const std::string target = target_of(path).string();
  TemporaryFile file{fmt::format("{}.{}.part", target, ::getpid())};
  file.descriptor = ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.descriptor < 0) {
    file.kept = true;  // not ours
    fail_errno(path);
  }
  for (const std::string_view part : parts) write_all(file.descriptor, part, path);
  const int closed = ::close(file.descriptor);
  file.descriptor = -1;
  if (closed != 0 || ::rename(file.path.c_str(), target.c_str()) != 0) fail_errno(path);
  file.kept = true;
}

}  // namespace gable::bench
