// Runs a program until it ends or a time limit passes, and captures its output. Sources that count a separate process
// (callgrind, PCM) start it here. The program is killed when its parent dies.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gable::perf {

struct ChildResult {
  int exit_code = -1;  ///< -1: it did not exit by itself
  int signal = 0;      ///< that killed it, or 0
  bool timed_out = false;
  bool interrupted = false;  ///< gable itself was (perfcounters/interrupt.h), and killed it
  double seconds = 0;
  std::string output;  ///< standard output
  std::string errors;  ///< standard error

  bool succeeded() const { return exit_code == 0; }
  /// The failure with the last lines of output; empty after success.
  std::string failure() const;
};

/// `argv[0]` is searched on the PATH. `environment` is added to this process's own. Throws std::runtime_error when no
/// process can be created. A program that can't be started gives exit code 127 and the reason in `errors`.
ChildResult run_child(const std::vector<std::string>& argv, double seconds_limit,
                      const std::vector<std::pair<std::string, std::string>>& environment = {});

/// The path of `program` on the PATH; empty if it is not found.
std::string find_program(const std::string& program);

/// The path of the running program.
std::string own_executable();

}  // namespace gable::perf
