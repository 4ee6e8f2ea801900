// See standard_input.h.
#include "perfcounters/program/standard_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace gable::perf {
namespace {

enum class Kind { other, file, pipe };

struct Noted {
  std::atomic<Kind> kind{Kind::other};
  std::atomic<off_t> offset{0};  ///< of a file
  std::atomic<short> ready{0};   ///< of a pipe: POLLIN: it held data; POLLHUP: nobody could write into it any more
};
Noted noted;

Kind kind_of_input() {
  struct stat status {};
  if (fstat(STDIN_FILENO, &status) != 0) return Kind::other;
  if (S_ISREG(status.st_mode)) return Kind::file;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) ? Kind::pipe : Kind::other;
}

short ready_events() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) == 1 ? input.revents : short{0};
}

/// The descriptor that this process was given shares its place with the first run's: only a new one has its own.
int reopened() {
  const int file = open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC);
  if (file >= 0) lseek(file, noted.offset, SEEK_SET);
  return file;
}

}  // namespace

void note_input() {
  noted.kind = kind_of_input();
  noted.offset = noted.kind == Kind::file ? std::max<off_t>(0, lseek(STDIN_FILENO, 0, SEEK_CUR)) : 0;
  noted.ready = noted.kind == Kind::pipe ? ready_events() : short{0};
}

int open_input_again() {
  if (noted.kind == Kind::file) {
    if (const int file = reopened(); file >= 0) return file;
  }
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) throw std::runtime_error(fmt::format("'/dev/null': {}", std::strerror(errno)));
  return null;
}

std::string lost_input() {
  if (noted.kind == Kind::file) {
    const int file = reopened();
    if (file < 0)
      return fmt::format("its standard input is a file that can't be opened again ({}), and empty when it runs again",
                         std::strerror(errno));
    close(file);
    return "";
  }
  const bool was_given_data =
      noted.kind == Kind::pipe &&
      ((noted.ready & POLLIN) != 0 || ((noted.ready & POLLHUP) == 0 && (ready_events() & (POLLIN | POLLHUP)) != 0));
  return was_given_data ? "its standard input is a pipe, which can't be read a second time: it is empty when the "
                          "program runs again; give it a file instead (gable measure -- ./app < file)"
                        : "";
}

}  // namespace gable::perf
