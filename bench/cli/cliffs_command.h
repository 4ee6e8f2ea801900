// `gable cliffs`: random layers that take longer than their neighbours promise (measure/cliffs.h).
#pragma once

#include <string>

#include "bench/console/console.h"
#include "bench/measure/cliffs.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

struct CliffOptions {
  std::string device = "cpu";
  int threads = 0;
  CliffJob job;
  std::string command;  ///< the command line, for the record
};

/// kCheckFailed where a property is broken.
ExitCode cliffs_command(const CliffOptions& options, Console& console);

}  // namespace gable::bench
