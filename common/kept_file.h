// What gable keeps on disk between processes: the folder, and files there that any number of processes may read and
// replace at once. A file that others could have written is not read.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/names_in.h"

namespace gable::kept {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

inline std::string error_text() { return std::strerror(errno); }

/// The same after open() with O_NOFOLLOW, whose ELOOP is about the file itself.
inline std::string why_not_opened() { return errno == ELOOP ? "it is a symbolic link" : error_text(); }

/// FNV-1a in 16 hexadecimal digits: the checksum of a line, or a file's name after what it is about.
inline std::string checksum(std::string_view text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) digits[i] = kDigits[hash & 15];
  return digits;
}

/// A variable of the environment. Empty in a program that runs with the rights of another user.
inline std::string variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

struct Folder {
  std::filesystem::path path{};  ///< empty: nothing is kept
  std::string wrong{};           ///< what is wrong with GABLE_CACHE; empty: nothing
};

/// $GABLE_CACHE, or $XDG_CACHE_HOME/gable, or ~/.cache/gable; none where GABLE_CACHE is "off" or there is no home.
inline Folder folder() {
  const std::string chosen = variable("GABLE_CACHE");
  if (chosen == "off") return {};
  if (chosen.starts_with("/")) return {.path = chosen};
  if (!chosen.empty()) return {.wrong = "GABLE_CACHE=" + chosen + ": it must be 'off' or an absolute folder"};
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with("/"))
    return {.path = std::filesystem::path(cache) / "gable"};
  std::error_code ignored;  // a home that does not exist, as a service's, is not made
  const std::string home = variable("HOME");
  if (home.starts_with("/") && std::filesystem::is_directory(home, ignored))
    return {.path = std::filesystem::path(home) / ".cache" / "gable"};
  return {};
}

/// Reads all of a file of at most `max_bytes`, whole MiB, into `text`. Returns why not; empty: done. A file that is not
/// there has no text.
inline std::string read(const std::filesystem::path& file, std::size_t max_bytes, std::string& text) {
  // O_NONBLOCK: a pipe of that name must not hold the program up.
  const File opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!opened) return errno == ENOENT || errno == ENOTDIR ? "" : why_not_opened();
  struct stat status {};
  if (fstat(opened.get(), &status) != 0) return error_text();
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  if (status.st_uid != geteuid()) return "it belongs to another user";
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "other users may write it";
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes)
    return "it is larger than " + std::to_string(max_bytes >> 20) + " MiB";
  text.resize(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(opened.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_text();
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return "";
}

/// Writes a new file. Returns why not; empty: done.
inline std::string write(const std::filesystem::path& file, std::string_view text) {
  const File opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!opened) return error_text();
  while (!text.empty()) {
    const ssize_t put = ::write(opened.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put < 0 ? error_text() : "nothing could be written";
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return "";
}

/// Keeps other processes from replacing files of the folder, which is made if it is not there.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& folder) : folder_error_(made(folder)), file_(opened(folder)) {
    if (!file_) {
      wrong_ = folder_error_ ? "its folder can't be made: " + folder_error_.message() : "its lock: " + why_not_opened();
    } else if (!wait()) {
      wrong_ = "another process holds its lock";
    }
  }
  /// Why there is no lock; empty: there is one.
  const std::string& wrong() const { return wrong_; }

 private:
  static constexpr int kTries = 1000;
  static constexpr std::chrono::milliseconds kWait{5};

  static std::error_code made(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    return error;
  }
  static int opened(const std::filesystem::path& folder) {
    return ::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  }
  /// Not for long: what is lost is measured again.
  bool wait() const {
    for (int i = 0; i < kTries; ++i) {
      if (flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return true;
      if (errno != EWOULDBLOCK && errno != EINTR) return false;
      std::this_thread::sleep_for(kWait);
    }
    return false;
  }

  std::error_code folder_error_;
  File file_;
  std::string wrong_;
};

/// Before `file` is written: removes the oldest files of its kind (PREFIX….txt) in its folder, so that there are at
/// most `most` with it, and temporary files of killed processes. Called under the lock, so no other process has a .tmp
/// file.
inline void drop_oldest(const std::filesystem::path& file, const std::string& prefix, std::size_t most) {
  namespace fs = std::filesystem;
  const fs::path folder = file.parent_path();
  std::error_code unknown;
  std::vector<std::pair<fs::file_time_type, fs::path>> others;
  for (const std::string& name : names_in(folder)) {
    const fs::path one = folder / name;
    if (!name.starts_with(prefix) || one == file) continue;
    if (one.extension() == ".tmp") fs::remove(one, unknown);
    if (one.extension() == ".txt") others.emplace_back(fs::last_write_time(one, unknown), one);
  }
  std::sort(others.begin(), others.end());
  for (std::size_t i = 0; i + most <= others.size(); ++i) fs::remove(others[i].second, unknown);
}

/// Replaces the file, whole, for all readers at once. Called under the lock. Returns why not; empty: done.
inline std::string replace(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path fresh = std::filesystem::path(file).replace_extension(".tmp");
  std::string why = write(fresh, text);
  if (why.empty() && rename(fresh.c_str(), file.c_str()) != 0) why = error_text();
  if (!why.empty()) unlink(fresh.c_str());
  return why;
}

}  // namespace gable::kept
