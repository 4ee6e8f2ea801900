// See files.h.
#include "perfcounters/machine/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/names_in.h"

namespace gable::perf {
namespace {

constexpr std::string_view kRandomEnd = "_XXXXXX";  // mkdtemp's

/// Opens a folder that belongs to this user and is no link; -1 if it is not such a folder.
int open_own_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status {};
  if (descriptor >= 0 && ::fstat(descriptor, &status) == 0 && status.st_uid == ::geteuid()) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  return -1;
}

/// Removes the folders of this name whose processes were killed: nobody has a lock on them.
void remove_abandoned(const std::string& base, const std::string& name) {
  for (const std::string& entry : names_in(base)) {
    if (entry.size() != name.size() + kRandomEnd.size() || entry.compare(0, name.size() + 1, name + "_") != 0) continue;
    const std::string path = base + "/" + entry;
    const int descriptor = open_own_folder(path);
    if (descriptor < 0) continue;
    std::error_code ignored;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(path, ignored);
    ::close(descriptor);
  }
}

/// Locks the folder; false if another process took it for abandoned and has removed it. `descriptor` is -1 if the
/// process has no descriptor left: the folder then has no lock.
bool hold(int descriptor, const std::string& path) {
  struct stat status {};
  if (descriptor < 0) return ::stat(path.c_str(), &status) == 0;
  ::flock(descriptor, LOCK_EX);
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

}  // namespace

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::string value_of(const std::string& path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const auto at = line.find(separator);
    if (at == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t\"") - begin + 1);
  }
  return "";
}

std::size_t parse_size(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return 0;
  const char unit = end == text.data() + text.size() ? '\0' : *end;
  if (unit == 'K' || unit == 'k') return value << 10;
  if (unit == 'M' || unit == 'm') return value << 20;
  return value;
}

TemporaryFolder::TemporaryFolder(const std::string& name) {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) {
    const char* named = std::getenv("TMPDIR");
    throw std::runtime_error(fmt::format("'{}': no folder for temporary files (TMPDIR): {}",
                                         named != nullptr ? named : "/tmp", error.message()));
  }
  remove_abandoned(base.string(), name);
  do {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    path_ = (base / (name + std::string(kRandomEnd))).string();
    if (mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error(
          fmt::format("'{}': no temporary folder can be made there (TMPDIR): {}", path_, std::strerror(errno)));
    descriptor_ = open_own_folder(path_);
  } while (!hold(descriptor_, path_));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace gable::perf
