// Runs a program that is not gable's, once: with its own standard streams, signals and exit code, and with an
// environment that makes its processes write a session (session.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gable::perf {

struct Launch {
  std::vector<std::string> argv;  ///< the program, searched on the PATH, and its arguments
  std::vector<std::pair<std::string, std::string>> environment{};  ///< added to this process's own
  bool own_streams = true;    ///< the program has this process's standard streams; false: /dev/null (repeated runs)
  std::string output_file{};  ///< not empty: standard output and error go to this file instead
};

/// How the program ended.
struct LaunchEnd {
  int exit_code = -1;        ///< -1: it did not exit by itself
  int signal = 0;            ///< that ended it, or 0
  double seconds = 0;        ///< from its start to its end
  std::string reason{};      ///< why it could not be started; empty: it ran
  bool interrupted = false;  ///< SIGINT or SIGTERM came to this process meanwhile; it was handed on to the program

  /// What a shell would return: the exit code, 128 + signal, 126 or 127 where it could not be started.
  int status() const;
};

/// Returns when the program and its children that stay in its process group have ended.
LaunchEnd launch(const Launch& what);

/// The environment that makes a program write its regions (and NVTX ranges), and its GPU kernels, into `folder`.
enum class SessionMode {
  time,       ///< regions with their times, GPU kernels with their times
  counters,   ///< GPU counters: one pass of `metrics`, kernel by kernel
  simulated,  ///< under callgrind: regions mark the profile
};
std::vector<std::pair<std::string, std::string>> session_environment(const std::string& folder, SessionMode mode,
                                                                     const std::vector<std::string>& metrics = {});

}  // namespace gable::perf
