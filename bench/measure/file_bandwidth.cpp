// See file_bandwidth.h. What goes through the page cache finds all of the file there: it was written just before.
#include "bench/measure/file_bandwidth.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "perfcounters/ceilings/arena.h"

namespace gable::bench {
namespace {

constexpr std::int64_t kBlockBytes = 1 << 20;

bool writes(Movement m) { return m == Movement::file_write || m == Movement::file_write_direct; }
bool is_direct(Movement m) { return m == Movement::file_read_direct || m == Movement::file_write_direct; }

std::string reason() { return std::generic_category().message(errno); }

/// An open file; the destructor closes it.
class Handle {
 public:
  explicit Handle(int number = -1) : number_(number) {}
  ~Handle() {
    if (number_ >= 0) ::close(number_);
  }
  Handle(Handle&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int number() const { return number_; }

 private:
  int number_;
};

class File {
 public:
  File(std::int64_t bytes, bool direct) : bytes_(bytes), block_(static_cast<std::size_t>(kBlockBytes)) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    if (error) throw Error(ErrorCode::unsupported, "no folder for temporary files (TMPDIR): " + error.message());
    if (std::filesystem::space(folder).available < static_cast<std::uintmax_t>(2 * bytes)) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("less than twice the file's {} bytes are free in {}", bytes, folder.string()));
    }
    if (block_.data() == nullptr) throw Error(ErrorCode::out_of_memory, "the system refused 1 MiB for a block");
    std::fill_n(block_.data(), block_.bytes() / sizeof(float), 1.0F);
    std::string path = (folder / "gable_bandwidth_XXXXXX").string();
    handle_ = Handle(::mkstemp(path.data()));
    if (handle_.number() < 0) {
      throw Error(ErrorCode::unsupported, fmt::format("no file in {}: {}", folder.string(), reason()));
    }
    Handle past_cache(direct ? ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC) : -1);
    const std::string refused = reason();
    ::unlink(path.c_str());
    if (direct && past_cache.number() < 0) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("the file system of {} doesn't do O_DIRECT: {}", folder.string(), refused));
    }
    pass(true);
    ::fsync(handle_.number());
    if (direct) handle_ = std::move(past_cache);
  }

  /// One pass over the file. Throws Error(device_failure).
  void pass(bool write) const {
    for (std::int64_t at = 0; at < bytes_; at += kBlockBytes) {
      const auto bytes = static_cast<std::size_t>(std::min(kBlockBytes, bytes_ - at));
      const ssize_t moved = write ? ::pwrite(handle_.number(), block_.data(), bytes, at)
                                  : ::pread(handle_.number(), block_.data(), bytes, at);
      if (moved == static_cast<ssize_t>(bytes)) continue;
      throw Error(ErrorCode::device_failure,
                  fmt::format("{} {} bytes of a file at {}: {}", write ? "writing" : "reading", bytes, at,
                              moved < 0 ? reason() : "fewer were moved"));
    }
  }

 private:
  std::int64_t bytes_;
  perf::Arena block_;  // on a page boundary, as O_DIRECT requires
  Handle handle_;
};

}  // namespace

Mover file_mover(const BandwidthCase& one) {
  const auto file = std::make_shared<const File>(one.bytes, is_direct(one.movement));
  Mover mover;
  mover.subject = perf::on_host([file, write = writes(one.movement)] { file->pass(write); });
  mover.kernel = is_direct(one.movement) ? "1 MiB blocks, O_DIRECT" : "1 MiB blocks, page cache";
  mover.threads = 1;
  mover.bytes = static_cast<double>(one.bytes);
  return mover;
}

}  // namespace gable::bench
