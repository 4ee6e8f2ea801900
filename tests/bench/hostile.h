// The command as a program that is started, given signals and read: what the tests of a hostile world share.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "tests/tools/folder.h"

namespace gable::hostile {

namespace fs = std::filesystem;

struct Folder : test::Folder {
  Folder() : test::Folder("hostile_test") {}
};

using test::read_text;
using test::write_text;

struct Result {
  int code;
  std::string err;
};

/// Runs `BEFORE gable ARGUMENTS` in a shell. Standard output is dropped unless the arguments say where it goes.
inline Result run_command(const Folder& folder, const std::string& arguments, const std::string& before = "") {
  const std::string err = folder.file("stderr");
  const std::string line = "exec >/dev/null 2>'" + err + "'; " + before + " '" GABLE_COMMAND "' " + arguments;
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(err)};
}

/// `gable ARGUMENTS` while it runs.
class Running {
 public:
  Running(const Folder& folder, const std::string& arguments) : pid_(started()) {
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);  // not doctest's, nor a background shell's
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const std::string line = "exec '" GABLE_COMMAND "' " + arguments + " >/dev/null 2>'" + folder.file("stderr") + "'";
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  /// A process in which no handler of this program's runs: signals wait until it has put them off.
  static pid_t started() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t pid = ::fork();
    if (pid != 0) ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return pid;
  }
  ~Running() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), wait();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void send(int signal) const { ::kill(pid_, signal); }
  /// As a terminal does: to it and to all that it started.
  void send_to_group(int signal) const { ::kill(-pid_, signal); }
  /// The ids of its children, with blanks between them.
  std::string children() const {
    std::string ids;
    std::error_code ignored;
    for (const fs::directory_entry& task : fs::directory_iterator("/proc/" + std::to_string(pid_) + "/task", ignored))
      ids += read_text((task.path() / "children").string());
    return ids;
  }
  /// The exit code, or minus the signal that ended it: SIGKILL after ten minutes.
  int wait() {
    int status = 0;
    for (int i = 0; ::waitpid(pid_, &status, WNOHANG) == 0; ++i) {
      if (i == 60000) ::kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

/// Waits until `done`, ten minutes at most.
template <typename Done>
inline bool comes(const Done& done) {
  for (int i = 0; i < 12000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

/// Of a CPU, in the processes that this one waited for: however busy the machine is.
inline double seconds_of_children() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

inline int temporary_files(const Folder& folder) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.file("")))
    count += entry.path().extension() == ".tmp" ? 1 : 0;
  return count;
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline std::string two_hundred_problems() {
  std::string list;
  for (int i = 0; i < 200; ++i) list += "mb1ic3ih8oc" + std::to_string(i + 1) + "kh3\n";
  return list;
}

inline constexpr const char* kSmall = "--problem mb1ic3ih8oc4kh3 --device reference";

/// The environment variable has another value while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = ::getenv(name); before != nullptr) before_ = before, was_set_ = true;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { was_set_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool was_set_ = false;
};

}  // namespace gable::hostile
