// Atomic writing.
#include "bench/report/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

namespace gable::bench::report {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error) {
  throw std::filesystem::filesystem_error(what, path, std::error_code(error, std::generic_category()));
}

}  // namespace

TemporaryFile::TemporaryFile(const std::filesystem::path& beside) {
  static std::atomic<unsigned> counter{0};
  for (;;) {
    path_ =
        beside.parent_path() / fmt::format(".{}.{}.{}.tmp", beside.filename().string(), getpid(), counter.fetch_add(1));
    // Not mkstemp: the file keeps the permissions that the umask gives to any other file.
    const int descriptor = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      ::close(descriptor);
      return;
    }
    if (errno != EEXIST) fail("can't create a file", path_, errno);
  }
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

void TemporaryFile::write(std::string_view content) const {
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (descriptor < 0) fail("can't open for writing", path_, errno);
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      ::close(descriptor);
      fail("can't write", path_, error);
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (::close(descriptor) != 0) fail("can't write", path_, errno);
}

void TemporaryFile::rename_to(const std::filesystem::path& destination) {
  std::filesystem::rename(path_, destination);
  path_.clear();
}

void write_whole(const std::filesystem::path& destination, std::string_view content) {
  TemporaryFile file(destination);
  file.write(content);
  file.rename_to(destination);
}

}  // namespace gable::bench::report
