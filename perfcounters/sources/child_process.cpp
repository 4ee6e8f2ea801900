// See child_process.h. Between fork and exec only async-signal-safe calls are made, since this process has threads.
#include "perfcounters/sources/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "perfcounters/interrupt.h"

namespace gable::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMaxWait = 0.1;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Both ends of a pipe, closed by the destructor.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw std::runtime_error(fmt::format("pipe2: {}: no child process can be made", std::strerror(errno)));
  }
  ~Pipe() {
    for (const int end : ends_)
      if (end >= 0) close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() {
    close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : added) replaced = replaced || text.compare(0, name.size() + 1, name + "=") == 0;
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

[[noreturn]] void become(char* const* argv, char* const* environment, int output, int errors, pid_t parent) {
  setpgid(0, 0);  // a group of its own, so that its children are killed with it
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int nothing = open("/dev/null", O_RDONLY);  // a tool that prompts reads end of file
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execvpe(argv[0], argv, environment);
  const char* reason = std::strerror(errno);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, reason, std::strlen(reason));
  _exit(127);
}

/// Appends what can be read now; false at end of file.
bool drain(int file, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t got = read(file, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

/// Reads both until end of file, the time limit or an interrupt; true if both ended.
bool read_until(Clock::time_point start, double seconds_limit, int output, int errors, ChildResult& result) {
  std::array<pollfd, 2> files{{{output, POLLIN, 0}, {errors, POLLIN, 0}}};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    const double left = seconds_limit - seconds_since(start);
    if (left <= 0 || interrupting_signal() != 0) return false;
    // Another thread may have got the signal: this one looks from time to time.
    poll(files.data(), files.size(), static_cast<int>(std::min(left, kMaxWait) * 1000) + 1);
    if (files[0].revents != 0 && !drain(output, result.output)) files[0].fd = -1;
    if (files[1].revents != 0 && !drain(errors, result.errors)) files[1].fd = -1;
  }
  return true;
}

std::string last_lines(const std::string& text, int count) {
  std::size_t end = text.find_last_not_of(" \n\t");
  if (end == std::string::npos) return "";
  std::size_t begin = end;
  for (int i = 0; i < count && begin != std::string::npos && begin > 0; ++i) begin = text.rfind('\n', begin - 1);
  begin = begin == std::string::npos || begin == 0 ? 0 : begin + 1;
  return text.substr(begin, end + 1 - begin);
}

}  // namespace

std::string ChildResult::failure() const {
  if (succeeded()) return "";
  const std::string said = last_lines(errors, 3);
  const std::string how = interrupted   ? std::string("it was stopped, since gable was interrupted")
                          : timed_out   ? fmt::format("it was stopped after {:.0f} s", seconds)
                          : signal != 0 ? fmt::format("signal {} ({}) ended it", signal, strsignal(signal))
                                        : fmt::format("it ended with exit code {}", exit_code);
  return said.empty() ? how : how + ": " + said;
}

ChildResult run_child(const std::vector<std::string>& argv, double seconds_limit,
                      const std::vector<std::pair<std::string, std::string>>& environment) {
  if (argv.empty()) throw std::invalid_argument("the command line of a child process is empty; it needs a program");
  if (interrupting_signal() != 0) return {.interrupted = true, .output = {}, .errors = {}};
  std::vector<std::string> words = argv;
  std::vector<std::string> variables = environment_with(environment);
  const std::vector<char*> word_pointers = pointers_to(words);
  const std::vector<char*> variable_pointers = pointers_to(variables);
  Pipe output;
  Pipe errors;
  const pid_t parent = getpid();
  const Clock::time_point start = Clock::now();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(fmt::format("fork: {}: no child process can be made", std::strerror(errno)));
  if (child == 0) become(word_pointers.data(), variable_pointers.data(), output.writer(), errors.writer(), parent);
  output.close_writer();
  errors.close_writer();

  ChildResult result;
  if (!read_until(start, seconds_limit, output.reader(), errors.reader(), result)) {
    result.interrupted = interrupting_signal() != 0;
    result.timed_out = !result.interrupted;
    if (kill(-child, SIGKILL) != 0) kill(child, SIGKILL);  // it may not have its own group yet
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.seconds = seconds_since(start);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::string find_program(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + program;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

std::string own_executable() {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : file.string();
}

}  // namespace gable::perf
