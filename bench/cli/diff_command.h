// `gable diff`: two studies, row by row (diff/compare.h).
#pragma once

#include <string>
#include <vector>

#include "bench/console/console.h"
#include "bench/diff/compare.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

struct DiffArguments {
  std::vector<std::string> before, after;  ///< files; several studies of one build are compared together
  bool allow_other_machine = false;
  DiffOptions options;
};

/// kCheckFailed where a row is slower. Throws Error(invalid_argument) for a file that is no study, where no row pairs
/// and where the machines differ.
ExitCode diff_command(const DiffArguments& arguments, Console& console);

}  // namespace gable::bench
