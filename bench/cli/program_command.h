// `gable measure -- app` and `gable roofline -- app`: a program that is not gable's.
#pragma once

#include <string>

#include "bench/cli/study_run.h"
#include "bench/console/console.h"

namespace gable::bench {

struct ProgramArguments {
  std::vector<std::string> argv;  ///< the program and its arguments
  int top = 20;
  bool experiments = false;
};

/// Writes the record, with `report` also the report's folder. The program keeps standard output for itself; what gable
/// says goes to standard error. Returns the exit code for gable: the program's own, or 128 + the signal that ended it.
int program_command(const StudyOptions& options, const ProgramArguments& program, bool report, Console& console);

}  // namespace gable::bench
