// See backends/cudnn/trial.h. The child has one thread and leaves by _exit(), so that nothing of this process is
// written or destroyed twice.
#include "backends/cudnn/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace gable {
namespace {

constexpr std::size_t kMaxWords = 500;

[[noreturn]] void be_the_child(const std::function<void()>& use, int errors) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT}) ::signal(signal, SIG_DFL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = ::open("/dev/null", O_RDWR);
  ::dup2(nowhere, STDIN_FILENO);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  try {
    use();
  } catch (...) {  // the caller will meet it as well
  }
  ::_exit(0);
}

/// Reads until end of file or the time limit; true at end of file.
bool read_all(int file, int seconds_limit, std::string& text) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_limit);
  std::array<char, 4096> buffer{};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd poll_file{file, POLLIN, 0};
    if (::poll(&poll_file, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got == 0 || (got < 0 && errno != EINTR)) return true;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

/// The text in one line; only its end if it is too long.
std::string words_of(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  const std::size_t end = text.find_last_not_of(' ');
  text.erase(end == std::string::npos ? 0 : end + 1);
  return text.size() > kMaxWords ? "..." + text.substr(text.size() - kMaxWords) : text;
}

}  // namespace

std::string why_it_ends_the_process(const std::function<void()>& use, int seconds_limit) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) be_the_child(use, ends[1]);
  ::close(ends[1]);
  std::string said;
  const bool ended = child < 0 || read_all(ends[0], seconds_limit, said);
  ::close(ends[0]);
  if (child < 0) return "";
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  while ((waited = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (waited != child) return "";  // the process ignores SIGCHLD, and nobody knows
  // The call would hang in this process as well. (A child also waits for ever for a lock that another thread held when
  // it was made: the caller may try again.)
  if (!ended) return "it had not returned after " + std::to_string(seconds_limit) + " s and was killed";
  std::string how;
  if (WIFSIGNALED(status)) {
    how = "signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) + ") ended it";
  } else if (WEXITSTATUS(status) != 0) {
    how = "it ended the process with exit code " + std::to_string(WEXITSTATUS(status));
  } else {
    return "";
  }
  const std::string words = words_of(said);
  return words.empty() ? how : how + ": " + words;
}

}  // namespace gable
