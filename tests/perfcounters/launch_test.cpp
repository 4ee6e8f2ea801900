// launch(): a program under gable behaves as it does under a shell.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "perfcounters/program/program_file.h"
#include "perfcounters/program/standard_input.h"
#include "tests/perfcounters/session_folder.h"

using namespace gable::perf;

namespace {

namespace fs = std::filesystem;

LaunchEnd quietly(const std::vector<std::string>& argv) { return launch({.argv = argv, .own_streams = false}); }

std::string script(const SessionFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.file(name)) << text;
  chmod(folder.file(name).c_str(), 0755);
  return folder.file(name);
}

/// Runs `body` in a process of its own, whose exit code it returns; `meanwhile` gets its number.
int in_child(const std::function<int()>& body, const std::function<void(pid_t)>& meanwhile) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  meanwhile(child);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool appears(const std::string& file) {
  for (int i = 0; i < 100000 && !fs::exists(file); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return fs::exists(file);
}

/// What comes out of a terminal until it is closed.
std::string read_terminal(int terminal) {
  std::string text;
  std::array<char, 256> buffer{};
  for (ssize_t got = 0; (got = read(terminal, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  return text;
}

}  // namespace

TEST_CASE("the CPU time is the program's and that of the processes that it waited for") {
  const LaunchEnd busy = quietly({"sh", "-c", "(i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); true"});
  CHECK(busy.cpu_seconds > 1e-3);
  CHECK(busy.cpu_seconds < 2 * busy.seconds);
  CHECK_FALSE(busy.is_static);
}

TEST_CASE("the time that a program waits for a CPU which others have is known") {
  std::ifstream own("/proc/self/schedstat");
  double ran = 0;
  if (!(own >> ran) || ran == 0) {
    MESSAGE("skipped: this kernel has no /proc/PID/schedstat");
    return;
  }
  // Two loops on one CPU: the program's own waits while the other one, its child, computes.
  const std::string loop = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
  const LaunchEnd beside = launch(
      {.argv = {"sh", "-c", "(" + loop + ") & " + loop + "; wait"}, .own_streams = false, .one_cpu = sched_getcpu()});
  CHECK(beside.queued_seconds > 0.01 * beside.seconds);
  CHECK(beside.queued_seconds < beside.seconds);
}

TEST_CASE("exit codes and signals are kept, and the time is the process's") {
  CHECK(quietly({"true"}).status() == 0);
  CHECK(quietly({"sh", "-c", "exit 7"}).status() == 7);
  const LaunchEnd killed = quietly({"sh", "-c", "kill -KILL $$"});
  CHECK(killed.signal == SIGKILL);
  CHECK(killed.exit_code == -1);
  CHECK(killed.status() == 128 + SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  const LaunchEnd slow = quietly({"sleep", "0.2"});
  CHECK(slow.seconds >= 0.2);
  CHECK(slow.seconds <= std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  CHECK_FALSE(slow.interrupted);
  CHECK(slow.reason.empty());
}

TEST_CASE("a program that can't be started has a shell's exit code and a reason") {
  const SessionFolder folder;
  const LaunchEnd missing = quietly({"no_such_program_of_gable"});
  CHECK(missing.status() == 127);
  CHECK(says(missing.reason, "'no_such_program_of_gable' is in no folder of the PATH"));
  CHECK(quietly({"./no/such"}).status() == 127);
  CHECK(quietly({""}).status() == 127);
  const LaunchEnd plain = quietly({"/etc/passwd"});
  CHECK(plain.status() == 126);
  CHECK(says(plain.reason, "can't be executed"));
  CHECK(says(plain.reason, "chmod +x"));
  const LaunchEnd directory = quietly({folder.path()});
  CHECK(directory.status() == 126);
  CHECK(says(directory.reason, "is a folder"));
  const LaunchEnd lost = quietly({script(folder, "lost", "#!/no/such/interpreter -x\n")});
  CHECK(lost.status() == 127);
  CHECK(says(lost.reason, "its interpreter '/no/such/interpreter' does not exist"));
  const LaunchEnd alien = quietly({script(folder, "alien", "\177ELF of another machine")});
  CHECK(alien.status() == 126);
  CHECK(says(alien.reason, "is no program of this machine"));
  CHECK_THROWS_AS(launch({.argv = {}}), std::invalid_argument);
}

TEST_CASE("scripts run, with a first line and without, and the PATH is searched") {
  const SessionFolder folder;
  CHECK(quietly({script(folder, "plain", "exit $1\n"), "9"}).status() == 9);
  CHECK(quietly({script(folder, "shell", "#!/bin/sh\nexit $#\n"), "a", "b c", ""}).status() == 3);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.path() + ":" + path).c_str(), 1);
  CHECK(quietly({"shell"}).status() == 0);
  setenv("PATH", path.c_str(), 1);
}

TEST_CASE("streams: output in a file, a closed input, or one's own; the environment is added to") {
  const SessionFolder folder;
  const std::string output = folder.file("output");
  setenv("GABLE_TEST_OF_LAUNCH", "before", 1);
  launch({.argv = {"sh", "-c", "echo out; echo err >&2; cat; echo $GABLE_TEST_OF_LAUNCH $LD_PRELOAD"},
          .environment = {{"GABLE_TEST_OF_LAUNCH", "after"}},
          .own_streams = false,
          .output_file = output});
  CHECK(folder.text("output") == "out\nerr\nafter\n");
  CHECK_THROWS_AS(launch({.argv = {"true"}, .output_file = "/no/such/folder/file"}), std::runtime_error);

  const int status = in_child(
      [&] {
        std::ofstream(folder.file("in")) << "from stdin";
        dup2(open(folder.file("in").c_str(), O_RDONLY), 0);
        dup2(open(folder.file("out").c_str(), O_WRONLY | O_CREAT, 0600), 1);
        return launch({.argv = {"cat"}}).status();
      },
      [](pid_t) {});
  CHECK(status == 0);
  CHECK(folder.text("out") == "from stdin");
}

TEST_CASE("a further run reads the same file from the same place; what came from a pipe is gone, and that is said") {
  const SessionFolder folder;
  const auto runs_again = [&](const std::function<int()>& input) {
    return in_child(
        [&] {
          dup2(input(), 0);
          dup2(open(folder.file("first").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
          launch({.argv = {"cat"}});
          for (const char* again : {"second", "third"})
            launch({.argv = {"cat"}, .own_streams = false, .output_file = folder.file(again)});
          std::ofstream(folder.file("lost")) << lost_input();
          return 0;
        },
        [](pid_t) {});
  };
  const auto piped = [](const std::string& text) {
    std::array<int, 2> ends{};
    CHECK(pipe(ends.data()) == 0);
    CHECK(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(ends[1]);
    return ends[0];
  };
  std::ofstream(folder.file("in")) << "read before\nfor the program";
  REQUIRE(runs_again([&] {
            const int file = open(folder.file("in").c_str(), O_RDONLY);
            unlink(folder.file("in").c_str());  // as of a shell's here-document
            lseek(file, 12, SEEK_SET);
            return file;
          }) == 0);
  for (const char* output : {"first", "second", "third"}) CHECK(folder.text(output) == "for the program");
  CHECK(folder.text("lost").empty());
  REQUIRE(runs_again([&] { return piped("once"); }) == 0);
  CHECK(folder.text("first") == "once");
  CHECK(folder.text("second").empty());
  CHECK(says(folder.text("lost"), "is a pipe, which can't be read a second time"));
  REQUIRE(runs_again([&] { return piped(""); }) == 0);
  CHECK(folder.text("lost").empty());  // it was empty in the first run, too
}

TEST_CASE("a program with another dynamic loader than this process's is told") {
  const SessionFolder folder;
  CHECK_FALSE(has_foreign_loader("/proc/self/exe"));
  CHECK_FALSE(has_foreign_loader(script(folder, "script", "#!/bin/sh\n")));
  CHECK_FALSE(has_foreign_loader("/nowhere"));
  std::string program = folder.text("/proc/self/exe");
  const std::size_t at = program.find("/ld-");
  REQUIRE(at != std::string::npos);
  program.replace(at, 4, "/LD-");
  CHECK(has_foreign_loader(script(folder, "foreign", program)));
}

TEST_CASE("a signal to gable alone reaches the program, and gable survives it") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    const SessionFolder folder;
    const std::string started = folder.file("started");
    const std::string body = "trap 'exit 42' INT TERM HUP; : > " + started + "; while :; do sleep 0.02; done";
    const int status = in_child(
        [&] {
          const LaunchEnd end = quietly({"sh", "-c", body});
          return end.interrupted ? end.status() : 1;
        },
        [&](pid_t gable) {
          REQUIRE(appears(started));
          kill(gable, number);
        });
    CHECK(status == 42);
  }
}

TEST_CASE("Ctrl-C on the terminal reaches the program once and leaves gable alive; its regions are kept") {
  const SessionFolder folder;
  const std::string started = folder.file("started");
  // A trap that counts: a second SIGINT would print again.
  const std::string body = "trap 'echo interrupted; n=1' INT; : > " + started +
                           "; while [ -z \"$n\" ]; do sleep 0.02; done; sleep 0.1; exit 6";
  int terminal = -1;
  const pid_t gable = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (gable < 0) {  // a container or a root folder without devpts
    MESSAGE("left out: no pseudo-terminal here: ", std::generic_category().message(errno));
    return;
  }
  if (gable == 0) {
    const LaunchEnd end = launch({.argv = {"sh", "-c", body}});
    _exit(end.interrupted ? end.status() : 1);
  }
  REQUIRE(appears(started));
  REQUIRE(write(terminal, "\x03", 1) == 1);
  const std::string text = read_terminal(terminal);
  int status = 0;
  waitpid(gable, &status, 0);
  close(terminal);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 6);
  const std::size_t first = text.find("interrupted");
  CHECK(first != std::string::npos);
  CHECK(text.find("interrupted", first + 1) == std::string::npos);
}

TEST_CASE("a signal that was ignored stays ignored, as under nohup") {
  const int status = in_child(
      [] {
        signal(SIGHUP, SIG_IGN);
        return quietly({"sh", "-c", "kill -HUP $$; exit 4"}).status();
      },
      [](pid_t) {});
  CHECK(status == 4);
}

TEST_CASE("children that outlive the program are left alone and said; short ones are waited for") {
  const SessionFolder folder;
  const LaunchEnd end = launch({.argv = {"sh", "-c", "sleep 0.1 & exit 0"}, .own_streams = false, .rest_seconds = 600});
  CHECK(end.outlived_by == 0);
  const LaunchEnd daemon = launch({.argv = {"sh", "-c", "sleep 3600 & echo $! >" + folder.file("pid") + "; exit 3"},
                                   .own_streams = false,
                                   .rest_seconds = 0.2});
  CHECK(daemon.status() == 3);
  CHECK(daemon.outlived_by == 1);
  CHECK(kill(std::stoi(folder.text("pid")), SIGKILL) == 0);
}

TEST_CASE("something can be attached to the process before the program starts") {
  const SessionFolder folder;
  int attached = 0;
  const Launch what{.argv = {"sh", "-c", "echo $$"},
                    .own_streams = false,
                    .output_file = folder.file("output"),
                    .attach = [&](int pid) { attached = pid; }};
  CHECK(launch(what).status() == 0);
  CHECK(folder.text("output") == std::to_string(attached) + "\n");
  CHECK_THROWS_AS(launch({.argv = {"true"}, .attach = [](int) { throw std::runtime_error("no"); }}),
                  std::runtime_error);
}

TEST_CASE("the session's environment: absolute, by mode, and no tool of the user's is replaced") {
  const auto value = [](const auto& environment, const std::string& name) -> std::string {
    for (const auto& [variable, text] : environment)
      if (variable == name) return text;
    return "";
  };
  const auto time = session_environment("here", SessionMode::time);
  CHECK(value(time, "GABLE_SESSION_FOLDER") == (fs::current_path() / "here").string());
  CHECK(value(time, "GABLE_SESSION_MODE") == "time");
  CHECK(fs::exists(value(time, "GABLE_LISTENER")));
  CHECK(value(time, "GABLE_LISTENER").front() == '/');
  CHECK(value(time, "NVTX_INJECTION64_PATH") == value(time, "GABLE_LISTENER"));
  const auto counters = session_environment("here", SessionMode::counters, {"a.sum", "b.sum"});
  CHECK(value(counters, "GABLE_SESSION_METRICS") == "a.sum,b.sum");
  CHECK(value(session_environment("here", SessionMode::simulated), "CUDA_INJECTION64_PATH").empty());
  CHECK(value(session_environment("here", SessionMode::kernels), "GABLE_SESSION_MODE") == "kernels");
  CHECK(session_notes(SessionMode::simulated).empty());

  setenv("NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
  CHECK(value(session_environment("here", SessionMode::time), "NVTX_INJECTION64_PATH").empty());
  CHECK(any_says(session_notes(SessionMode::time),
                 "no NVTX ranges: NVTX_INJECTION64_PATH is '/opt/nsys/libToolsInjection64.so' already"));
  unsetenv("NVTX_INJECTION64_PATH");
}
