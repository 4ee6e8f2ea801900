// See files.h. A rename within one folder is atomic on POSIX. Nothing is synced, so a power cut may lose the file.
#include "bench/common/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gable/error.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

namespace gable::bench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, fmt::format("output file '{}': {}", path, reason));
}

[[noreturn]] void fail_errno(const char* what, const fs::path& path, int error) {
  throw fs::filesystem_error(what, path, std::error_code(error, std::generic_category()));
}

/// Returns 0 or errno.
int write_all(int descriptor, std::string_view part) {
  while (!part.empty()) {
    const ssize_t written = ::write(descriptor, part.data(), part.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    part.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// The file behind symbolic links: replacing it keeps the link.
fs::path target_of(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  if (error) fail(path, error.message());
  return target;
}

}  // namespace

TemporaryFile::TemporaryFile(const fs::path& beside) {
  static std::atomic<unsigned> counter{0};
  for (;;) {
    path_ = beside.parent_path() /
            fmt::format(".{}.{}.{}.tmp", beside.filename().string(), ::getpid(), counter.fetch_add(1));
    // Not mkstemp: the file keeps the permissions that the umask gives to any other file.
    const int descriptor = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      ::close(descriptor);
      return;
    }
    if (errno != EEXIST) fail_errno("can't create a file", path_, errno);
  }
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove(path_, ignored);
}

void TemporaryFile::write(const std::vector<std::string_view>& parts) const {
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (descriptor < 0) fail_errno("can't open for writing", path_, errno);
  int error = 0;
  for (const std::string_view part : parts) {
    if (error == 0) error = write_all(descriptor, part);
  }
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) fail_errno("can't write", path_, error);
}

void TemporaryFile::rename_to(const fs::path& destination) {
  fs::rename(path_, destination);
  path_.clear();
}

void write_whole(const fs::path& destination, const std::vector<std::string_view>& parts) {
  TemporaryFile file(destination);
  file.write(parts);
  file.rename_to(destination);
}

void check_writable(const std::string& path) {
  if (path.empty()) fail(path, "the name is empty");
  const fs::path target = target_of(path);
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail(path, "is a folder or a device; name a file");
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) fail(path, fmt::format("the folder '{}' does not exist", folder.string()));
  // Root may write anywhere by its permissions, but not in a file system that is read-only, or /proc.
  try {
    const TemporaryFile probe(target);
  } catch (const fs::filesystem_error& refused) {
    fail(path, refused.code().message());
  }
}

void write_file(const std::string& path, const std::vector<std::string_view>& parts) {
  check_writable(path);
  try {
    write_whole(target_of(path), parts);
  } catch (const fs::filesystem_error& error) {
    fail(path, error.code().message());
  }
}

}  // namespace gable::bench
