// See launch.h. Between fork and exec only async-signal-safe calls are made, since this process may have threads.
#include "perfcounters/program/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "common/signal_block.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/program/program_file.h"
#include "perfcounters/program/standard_input.h"
#include "perfcounters/sources/counter_plugins.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// ---- Signals

constexpr std::array kHandedOn{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

std::atomic<bool> ignored_children{false};  // by this process, before keep_children()

// What the handler sees. There is one launch at a time.
std::atomic<pid_t> running{0};
std::atomic<bool> was_interrupted{false};

// The terminal's keys go to the whole process group: the program has such a signal already.
void hand_on(int number, siginfo_t* info, void*) {
  const int error = errno;
  was_interrupted = true;
  const pid_t program = running;
  if (program > 0 && info->si_code != SI_KERNEL) kill(program, number);
  errno = error;
}

/// While it lives, signals that would end this process are handed on to the program. A signal that is ignored stays so.
class SignalKeeper {
 public:
  SignalKeeper() {
    was_interrupted = false;
    struct sigaction handler {};
    handler.sa_sigaction = hand_on;
    handler.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&handler.sa_mask);
    for (std::size_t i = 0; i < kHandedOn.size(); ++i) {
      sigaction(kHandedOn[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(kHandedOn[i], &handler, nullptr);
    }
  }
  ~SignalKeeper() { restore(); }
  SignalKeeper(const SignalKeeper&) = delete;
  SignalKeeper& operator=(const SignalKeeper&) = delete;
  void restore() const {
    for (std::size_t i = 0; i < kHandedOn.size(); ++i) sigaction(kHandedOn[i], &before_[i], nullptr);
  }

 private:
  std::array<struct sigaction, kHandedOn.size()> before_{};
};

/// Makes descendants whose parent has ended children of this process, so that it sees them.
class Subreaper {
 public:
  Subreaper() {
    prctl(PR_GET_CHILD_SUBREAPER, &before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, static_cast<unsigned long>(before_)); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

 private:
  int before_ = 0;
};

// ---- The process

/// A file descriptor, closed by the destructor.
class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  ~File() { reset(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  void reset(int descriptor = -1) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = descriptor;
  }

 private:
  int descriptor_;
};

struct Pipe {
  File reader, writer;
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
      throw std::runtime_error(fmt::format("pipe2: {}: no process can be made", std::strerror(errno)));
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
};

/// This process's environment with `added`. If a name occurs several times, the last value counts.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : added) values[name] = value;
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (values.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : values) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Everything that the child needs between fork and exec, made before the fork.
struct Start {
  const char* file = nullptr;
  char* const* argv = nullptr;
  char* const* through_shell = nullptr;  ///< argv for /bin/sh, for a script without a first line that says by whom
  char* const* environment = nullptr;
  int input = -1, output = -1;  ///< -1: this process's own
  int go = -1;                  ///< end of file: start
  int failure = -1;             ///< errno of exec is written there
  int one_cpu = -1;             ///< as Launch's
};

[[noreturn]] void become(const Start& start, const SignalKeeper& signals, const SignalBlock& block) {
  if (start.input >= 0) dup2(start.input, STDIN_FILENO);
  if (start.output >= 0) {
    dup2(start.output, STDOUT_FILENO);
    dup2(start.output, STDERR_FILENO);
  }
  if (start.one_cpu >= 0) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(start.one_cpu, &only);
    sched_setaffinity(0, sizeof(only), &only);
  }
  char byte = 0;
  while (read(start.go, &byte, 1) < 0 && errno == EINTR) {
  }
  signals.restore();
  if (ignored_children) signal(SIGCHLD, SIG_IGN);
  block.restore();
  execve(start.file, start.argv, start.environment);
  if (errno == ENOEXEC && start.through_shell != nullptr) execve("/bin/sh", start.through_shell, start.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(start.failure, &error, sizeof(error));
  _exit(kProgramNotFound);
}

int opened(const char* file, int flags) {
  const int descriptor = open(file, flags | O_CLOEXEC, 0666);
  if (descriptor < 0) throw std::runtime_error(fmt::format("'{}': {}", file, std::strerror(errno)));
  return descriptor;
}

void redirect(const Launch& what, File& input, File& output) {
  if (what.own_streams) {
    note_input();
  } else {
    input.reset(open_input_again());
  }
  if (!what.output_file.empty())
    output.reset(opened(what.output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC));
  else if (!what.own_streams)
    output.reset(opened("/dev/null", O_WRONLY));
}

void reap(pid_t child) {
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

double seconds_of(const struct timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Time that the process's first thread waited for a CPU: the second number of its schedstat. Of other threads and
/// processes nothing is left when they have ended.
double queued_seconds_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/schedstat", process));
  double ran = 0, queued = 0;  // nanoseconds
  return file >> ran >> queued ? 1e-9 * queued : 0;
}

/// Waits for the end of the program. It stays a zombie until nobody can send it a signal any more, since its number
/// could be another process's then.
void wait_for(pid_t program, Clock::time_point start, LaunchEnd& end) {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(program), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  end.seconds = seconds_since(start);
  end.queued_seconds = queued_seconds_of(program);
  running = 0;
  int status = 0;
  struct rusage usage {};
  while (wait4(program, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  end.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  end.system_seconds = seconds_of(usage.ru_stime);
  end.page_faults = usage.ru_minflt;
  end.resident_bytes = 1024.0 * static_cast<double>(usage.ru_maxrss);
  end.waits = usage.ru_nvcsw;
  end.preemptions = usage.ru_nivcsw;
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
}

/// The children of this process that have not ended.
int count_children() {
  int count = 0;
  std::error_code error;
  for (const auto& task : fs::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "children");
    for (int pid = 0; file >> pid;) ++count;
  }
  return std::max(count, 1);  // a kernel without that file: there is one, since waitid() says so
}

/// Gives descendants some time to end; how many are left.
int wait_for_descendants(double seconds) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended > 0) continue;
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) return 0;  // ECHILD: none
    if (seconds_since(start) > seconds) return count_children();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// ---- The session

const char* to_string(SessionMode mode) {
  switch (mode) {
    case SessionMode::time:
      return "time";
    case SessionMode::kernels:
      return "kernels";
    case SessionMode::alone:
      return "alone";
    case SessionMode::counters:
      return "counters";
    default:
      return "simulated";
  }
}

/// A variable that makes the program load one of gable's libraries.
struct Injection {
  const char* variable;
  const char* library;
  const char* what;      ///< what is lost without it
  bool only_gables;      ///< only gable uses it, so a value that the user has set belongs to no other tool
  bool under_callgrind;  ///< it is needed under callgrind, too
};

constexpr const char* kCudaInjection = "CUDA_INJECTION64_PATH";

constexpr std::array kInjections{
    Injection{"GABLE_LISTENER", "libgable_listen.so", "no regions", true, true},
    Injection{"NVTX_INJECTION64_PATH", "libgable_listen.so", "no NVTX ranges", false, true},
    Injection{kCudaInjection, "libgable_cupti.so", "no GPU kernels", false, false},
};

/// Whether the variable can be set to this file, or why not.
struct InjectionState {
  std::string file{};
  std::string reason{};
};

InjectionState state_of(const Injection& injection) {
  const CounterPlugin plugin = find_counter_plugin(injection.library);
  if (plugin.file.empty())
    return {.reason = fmt::format("{}: {} is not in {}", injection.what, injection.library, plugin.looked)};
  const char* set = std::getenv(injection.variable);
  if (!injection.only_gables && set != nullptr && *set != '\0' && plugin.file != set)
    return {.reason = fmt::format("{}: {} is '{}' already, which is another tool's; unset it to have them",
                                  injection.what, injection.variable, set)};
  return {.file = plugin.file};
}

bool of_use(const Injection& injection, SessionMode mode) {
  return mode != SessionMode::simulated || injection.under_callgrind;
}

/// Forks a process that waits until `go` is closed and then becomes the program.
pid_t fork_program(const Start& start, const SignalKeeper& signals, Pipe& go) {
  const SignalBlock block(kHandedOn);  // until it is known which process must get them
  const pid_t program = fork();
  if (program < 0) throw std::runtime_error(fmt::format("fork: {}: no process can be made", std::strerror(errno)));
  if (program == 0) {
    close(go.writer.get());
    become(start, signals, block);
  }
  running = program;
  return program;
}

/// Calls Launch::attach, if set. If it throws, the process is killed.
void attach(const Launch& what, pid_t program) {
  if (!what.attach) return;
  try {
    what.attach(program);
  } catch (...) {
    kill(program, SIGKILL);
    running = 0;
    reap(program);
    throw;
  }
}

/// errno of the program's exec; 0 if it succeeded, which closes the pipe.
int exec_error(const Pipe& failure) {
  int error = 0;
  ssize_t got = 0;
  while ((got = read(failure.reader.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  return got == static_cast<ssize_t>(sizeof(error)) ? error : 0;
}

}  // namespace

void keep_children() {
  struct sigaction action {};
  if (sigaction(SIGCHLD, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) return;
  ignored_children = true;
  signal(SIGCHLD, SIG_DFL);
}

int LaunchEnd::status() const { return signal != 0 ? 128 + signal : exit_code; }

LaunchEnd launch(const Launch& what) {
  if (what.argv.empty()) throw std::invalid_argument("the command line is empty; it needs a program");
  LaunchEnd end;
  const ProgramFile found = find_program_file(what.argv.front());
  if (found.status != 0) {
    end.exit_code = found.status;
    end.reason = found.reason;
    return end;
  }
  std::vector<std::string> words = what.argv;
  std::vector<std::string> shell_words{"sh", found.file};
  shell_words.insert(shell_words.end(), words.begin() + 1, words.end());
  std::vector<std::string> variables = environment_with(what.environment);
  const std::vector<char*> argv = pointers_to(words);
  const std::vector<char*> shell = pointers_to(shell_words);
  const std::vector<char*> environment = pointers_to(variables);
  File input, output;
  redirect(what, input, output);
  Pipe go, failure;

  const Subreaper subreaper;
  const SignalKeeper signals;
  if (const int signal = interrupting_signal(); signal != 0) {  // it came before this one handed signals on
    end.signal = signal;
    end.interrupted = true;
    end.reason = fmt::format("interrupted before '{}' was started", what.argv.front());
    return end;
  }
  const Start start{.file = found.file.c_str(),
                    .argv = argv.data(),
                    .through_shell = is_elf(found.file) ? nullptr : shell.data(),
                    .environment = environment.data(),
                    .input = input.get(),
                    .output = output.get(),
                    .go = go.reader.get(),
                    .failure = failure.writer.get(),
                    .one_cpu = what.one_cpu};
  const pid_t program = fork_program(start, signals, go);
  attach(what, program);
  const Clock::time_point begin = Clock::now();
  go.writer.reset();
  failure.writer.reset();
  const int error = exec_error(failure);
  wait_for(program, begin, end);
  end.interrupted = was_interrupted;
  if (error != 0) {
    ProgramFile reason = explain_exec(found.file, error);
    end.exit_code = reason.status;
    end.reason = std::move(reason.reason);
    return end;
  }
  end.is_static = is_static_program(found.file);
  end.outlived_by = wait_for_descendants(what.rest_seconds);
  return end;
}

std::vector<std::pair<std::string, std::string>> session_environment(const std::string& folder, SessionMode mode,
                                                                     const std::vector<std::string>& metrics) {
  std::vector<std::pair<std::string, std::string>> variables{
      {"GABLE_SESSION_FOLDER", fs::absolute(folder).lexically_normal().string()},
      {"GABLE_SESSION_MODE", to_string(mode)}};
  std::string names;
  for (const std::string& metric : metrics) names += (names.empty() ? "" : ",") + metric;
  if (!names.empty()) variables.emplace_back("GABLE_SESSION_METRICS", names);
  for (const Injection& injection : kInjections) {
    if (!of_use(injection, mode)) continue;
    const InjectionState state = state_of(injection);
    if (!state.file.empty()) variables.emplace_back(injection.variable, state.file);
  }
  return variables;
}

/// The last: under WSL the driver is Windows'.
bool has_nvidia_driver() {
  return std::ranges::any_of(std::array{"/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"},
                             [](const char* file) { return access(file, F_OK) == 0; });
}

std::vector<std::string> session_notes(SessionMode mode) {
  std::vector<std::string> notes;
  for (const Injection& injection : kInjections) {
    if (!of_use(injection, mode)) continue;
    if (std::strcmp(injection.variable, kCudaInjection) == 0 && !has_nvidia_driver()) continue;
    InjectionState state = state_of(injection);
    if (!state.reason.empty()) notes.push_back(std::move(state.reason));
  }
  return notes;
}

}  // namespace gable::perf
