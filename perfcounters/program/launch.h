// Runs a program that is not gable's, once: with its own standard streams, signals and exit code, and with an
// environment that makes its processes write a session (session.h).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gable::perf {

struct Launch {
  std::vector<std::string> argv;  ///< the program, searched on the PATH, and its arguments
  std::vector<std::pair<std::string, std::string>> environment{};  ///< added to this process's own
  /// The program has this process's standard streams. False, for repeated runs: its output is thrown away, and its
  /// input is that of the last run with own streams again if that is a file, else empty (standard_input.h).
  bool own_streams = true;
  std::string output_file{};  ///< not empty: standard output and error go to this file instead
  int one_cpu = -1;           ///< the only CPU that it may use; -1: any
  double rest_seconds = 1;    ///< for its descendants to end after it
  /// Called with the number of the process that is to become the program, before it does (counters are attached then).
  std::function<void(int pid)> attach{};
};

/// How the program ended.
struct LaunchEnd {
  int exit_code = -1;         ///< -1: it did not exit by itself
  int signal = 0;             ///< that ended it, or 0
  double seconds = 0;         ///< from its start to its end
  double cpu_seconds = 0;     ///< of all its threads, and of the processes that it waited for; in the kernel too
  double system_seconds = 0;  ///< of them, in the kernel
  double queued_seconds = 0;  ///< its first thread was ready to run, and other programs had the CPU; 0: not known
  long page_faults = 0;       ///< of the same processes, without reading from a disk
  double resident_bytes = 0;  ///< most memory that one of them had at a time
  long waits = 0;             ///< how often they gave up their CPU to wait
  long preemptions = 0;       ///< how often the system took it away from them
  std::string reason{};       ///< why it could not be started; empty: it ran
  bool interrupted = false;   ///< SIGINT, SIGTERM, SIGHUP or SIGQUIT arrived during the run; the program got it, too
  bool is_static = false;     ///< it is linked statically: nothing can be loaded into it
  int outlived_by = 0;        ///< descendants that still ran `rest_seconds` after its end; they are left running

  /// What a shell would return: the exit code, 128 + signal, 126 or 127 where it could not be started.
  int status() const;
};

/// For main(): a parent may have left SIGCHLD ignored. The system then forgets how children ended before anyone can
/// ask. This process stops ignoring it; programs that it launches ignore it as they would without gable.
void keep_children();

/// Returns when the program and its descendants have ended, at most `rest_seconds` after the program. The program is in
/// this process's group, so that the terminal's keys (Ctrl-C, Ctrl-Z) reach it as without gable. Signals that are sent
/// to this process alone are passed on. One launch at a time, and without other children of this process. Throws
/// std::invalid_argument for an empty `argv`, std::runtime_error where no process can be made.
LaunchEnd launch(const Launch& what);

/// The environment that makes a program write its regions (and NVTX ranges), and its GPU kernels, into `folder`.
enum class SessionMode {
  time,       ///< regions with their times; GPU kernels with theirs while recording them costs little
  kernels,    ///< GPU kernels with their times, all of them
  alone,      ///< GPU kernels with their times, one after the other; of CUDA graphs, those of some launches
  counters,   ///< GPU counters: one pass of `metrics`, kernel by kernel
  simulated,  ///< under callgrind: regions mark the profile
};
/// GABLE_SESSION_FOLDER (absolute), GABLE_SESSION_MODE ("time", "kernels", "alone", "counters", "simulated"),
/// GABLE_SESSION_METRICS (separated by commas), GABLE_LISTENER and NVTX_INJECTION64_PATH (libgable_listen.so),
/// CUDA_INJECTION64_PATH (libgable_cupti.so, unless simulated). A library that is not there, or an injection variable
/// that the user has set already, is left out: session_notes() says so.
std::vector<std::pair<std::string, std::string>> session_environment(const std::string& folder, SessionMode mode,
                                                                     const std::vector<std::string>& metrics = {});

/// An NVIDIA driver is loaded.
bool has_nvidia_driver();

/// What session_environment() left out in this mode and why, for people. Without an NVIDIA driver a missing
/// libgable_cupti.so is no loss, and there is no note of it.
std::vector<std::string> session_notes(SessionMode mode);

}  // namespace gable::perf
