// Runs a program to its end or to a time limit and keeps what it said: the sources that count around or inside a
// process of their own (callgrind, PCM) start it here. The program dies with its parent.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gable::perf {

struct ChildResult {
  int exit_code = -1;  ///< -1: it did not end by itself
  int signal = 0;      ///< that ended it, or 0
  bool timed_out = false;
  double seconds = 0;
  std::string output;  ///< standard output
  std::string errors;  ///< standard error

  bool succeeded() const { return exit_code == 0; }
  /// What went wrong, with the last lines that it wrote; empty after success.
  std::string failure() const;
};

/// `argv[0]` is looked for on the PATH. `environment` is added to this process's own. Throws std::runtime_error when no
/// process can be made; a program that can't be started ends with exit code 127 and the reason in `errors`.
ChildResult run_child(const std::vector<std::string>& argv, double seconds_limit,
                      const std::vector<std::pair<std::string, std::string>>& environment = {});

/// Where `program` lies on the PATH; empty where it doesn't.
std::string find_program(const std::string& program);

/// The file of the running program.
std::string own_executable();

}  // namespace gable::perf
