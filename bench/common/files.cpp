// See files.h. A rename within one folder is atomic on POSIX. Nothing is synced, so a power cut may lose the file. A
// temporary file is locked (flock) for as long as its process lives, so that those of killed processes can be told from
// those in use, also where process ids mean nothing: in containers that share a folder.
#include "bench/common/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gable/error.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <new>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "bench/common/text.h"
#include "common/names_in.h"
#include "common/signal_block.h"

namespace gable::bench {
namespace {

/// Signals that would end the process and leave a temporary file behind.
constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP};
constexpr std::size_t kMinSpace = 16384;  // bytes that check_writable() asks for: the record of a few rows

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = ".gable.";
constexpr std::string_view kSuffix = ".tmp";

[[noreturn]] void fail(const std::string& path, const std::string& reason,
                       ErrorCode code = ErrorCode::invalid_argument) {
  throw Error(code, fmt::format("output file '{}': {}", path, reason));
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

/// The file behind symbolic links, whether it exists or not: replacing it keeps the links.
fs::path target_of(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as in Linux
  std::error_code error;
  fs::path name = path;
  for (int links = 0; fs::is_symlink(fs::symlink_status(name, error)); ++links) {
    if (links == kMaxLinks) fail(path, std::strerror(ELOOP));
    const fs::path to = fs::read_symlink(name, error);
    if (error) fail(path, error.message(), code_of(error));
    name = name.parent_path() / to;  // `to` alone if it is absolute
  }
  const fs::path target = fs::weakly_canonical(name, error);
  if (error) fail(path, error.message(), code_of(error));
  return target;
}

/// What is no file by its type; empty: a file, or nothing is there yet. By the name before its links are followed,
/// since those in /proc/self/fd lead to what has no path: "pipe:[12345]".
std::string kind_that_is_no_file(const std::string& path) {
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::character:
    case fs::file_type::block:
      return "a device, or a terminal";
    default:
      return "";
  }
}

bool is_temporary(const std::string& name) { return name.starts_with(kPrefix) && name.ends_with(kSuffix); }

/// Removes the temporary files of processes that were killed: nobody has a lock on them.
void remove_abandoned(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (!is_temporary(name)) continue;
    const fs::path file = folder / name;
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(file.c_str());
    ::close(descriptor);
  }
}

/// A file that this process holds, or one that another process took for abandoned before it was locked.
bool is_held(int descriptor) {
  struct stat status {};
  ::flock(descriptor, LOCK_EX);
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

struct Descriptor {
  int number;
  Descriptor(const fs::path& path, int flags) : number(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (number < 0) fail_errno("can't open", path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number); }
};

off_t bytes_in(const Descriptor& file, const fs::path& path) {
  struct stat status {};
  if (::fstat(file.number, &status) != 0) fail_errno("can't stat", path, errno);
  return status.st_size;
}

/// Returns 0 or errno.
int copy_all(const Descriptor& from, const Descriptor& to) {
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    const ssize_t bytes = ::read(from.number, piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return bytes < 0 ? errno : 0;
    if (const int error = write_all(to.number, {piece.data(), static_cast<std::size_t>(bytes)})) return error;
  }
}

/// Writes what `from` holds into `to`. Space is taken first, so that a full disk leaves `to` as it was.
void overwrite(const fs::path& from, const fs::path& to) {
  const Descriptor source(from, O_RDONLY), target(to, O_WRONLY);
  const off_t before = bytes_in(target, to), after = bytes_in(source, from);
  int error = after > before ? ::posix_fallocate(target.number, 0, after) : 0;
  if (error != 0) {
    static_cast<void>(!::ftruncate(target.number, before));
    fail_errno("can't write", to, error);
  }
  error = copy_all(source, target);
  if (error == 0 && ::ftruncate(target.number, after) != 0) error = errno;
  if (error != 0) fail_errno("can't write", to, error);
}

/// Creates a file that was not there, and puts its name into `path`. Returns its descriptor, or -1 and errno. Its
/// permissions are what the umask gives to any file; mkostemp() would give 0600, and reading the umask sets it for all
/// threads of the program that this library is a part of.
int create_file(const fs::path& folder, std::string& path) {
  std::random_device random;
  for (;;) {
    // The name does not hold the destination's, which may be as long as a name can be.
    std::string name = (folder / fmt::format("{}{:08x}{}", kPrefix, random(), kSuffix)).string();
    const int descriptor = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) path = std::move(name);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
}

}  // namespace

TemporaryFile::TemporaryFile(const fs::path& beside) : TemporaryFile() {  // so an error below runs the destructor
  const fs::path folder = beside.parent_path().empty() ? fs::path(".") : beside.parent_path();
  remove_abandoned(folder);
  do {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    descriptor_ = create_file(folder, path_);
    if (descriptor_ < 0) fail_errno("can't create a file in", folder, errno);
  } while (!is_held(descriptor_));
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
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
  struct stat before {};
  if (::stat(destination.c_str(), &before) == 0) {
    if (before.st_nlink > 1) return overwrite(path_, destination);  // its other names shall show the same data
    // A program that drew the file may have replaced it: by name, not by the descriptor.
    ::chmod(path_.c_str(), before.st_mode & 07777);
  }
  fs::rename(path_, destination);
  path_.clear();
}

void write_whole(const fs::path& destination, const std::vector<std::string_view>& parts) {
  const SignalBlock block(kEnding);
  try {
    TemporaryFile file(destination);
    file.write(parts);
    file.rename_to(destination);
  } catch (const fs::filesystem_error& error) {  // nobody knows the temporary file's name
    throw fs::filesystem_error("can't write", destination, error.code());
  }
}

std::string read_whole(const std::string& what, const std::string& path) {
  constexpr std::size_t kMost = std::size_t{256} << 20, kPiece = std::size_t{1} << 16;
  const bool is_input = path == kStandardInput;
  const auto refuse = [&](const std::string& why) {
    const std::string name = is_input ? "on standard input" : fmt::format("'{}'", printable(path));
    throw Error(ErrorCode::invalid_argument, fmt::format("{} {}: {}", what, name, why));
  };
  std::error_code ignored;
  if (!is_input && fs::is_directory(path, ignored)) refuse("is a folder; name a file");
  errno = 0;
  std::ifstream named;
  if (!is_input) named.open(path, std::ios::binary);
  std::istream& file = is_input ? std::cin : named;
  if (!file && errno == ENOMEM) throw std::bad_alloc();
  if (is_input && std::cin.eof()) refuse("it was read before; it can be named once");
  if (!file) refuse(fmt::format("the file can't be opened: {}", std::strerror(errno)));
  std::string text;
  std::vector<char> piece(kPiece);
  while (file.read(piece.data(), kPiece), file.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMost) refuse("has more than 256 MiB");
  }
  if (file.bad()) refuse("reading failed");
  return text;
}

ErrorCode code_of(const std::error_code& error) {
  for (const int of_the_system : {ENOSPC, EDQUOT, EIO, EFBIG, EMFILE, ENFILE, ENOMEM}) {
    if (error == std::error_code(of_the_system, std::generic_category())) return ErrorCode::device_failure;
  }
  return ErrorCode::invalid_argument;
}

void check_writable(const std::string& path, const std::string& instead) {
  if (path.empty()) fail(path, "the name is empty");
  if (path == "-") fail(path, "standard output takes the record alone (--json -); name a file, as in ./-");
  if (const std::string kind = kind_that_is_no_file(path); !kind.empty())
    fail(path, fmt::format("is {}; name a file{}", kind, instead));
  const fs::path target = target_of(path);
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) fail(path, fmt::format("the folder '{}' does not exist", folder.string()));
  const long longest = ::pathconf(folder.c_str(), _PC_NAME_MAX);
  if (longest > 0 && target.filename().string().size() > static_cast<std::size_t>(longest))
    fail(path, fmt::format("the name has more than {} bytes", longest));
  if (fs::exists(status) && ::access(target.c_str(), W_OK) != 0) fail(path, std::strerror(errno));
  const SignalBlock block(kEnding);
  try {
    const TemporaryFile probe(target);  // the only sure answer: access() says yes to root
    probe.write({std::string(kMinSpace, '\n')});
  } catch (const fs::filesystem_error& failure) {
    fail(path, failure.code().message(), code_of(failure.code()));
  }
}

void check_distinct(const std::vector<std::string>& paths) {
  std::set<fs::path> seen;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path file = fs::weakly_canonical(fs::absolute(path, error), error);
    if (!path.empty() && !error && !seen.insert(file).second) fail(path, "is named twice; each output needs its own");
  }
}

void write_file(const std::string& path, const std::vector<std::string_view>& parts) {
  check_writable(path);
  try {
    write_whole(target_of(path), parts);
  } catch (const fs::filesystem_error& error) {
    fail(path, error.code().message(), code_of(error.code()));
  }
}

}  // namespace gable::bench
