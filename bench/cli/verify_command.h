// `gable verify`: prints verify()'s results as a table, writes the JSON and gives the exit code.
#pragma once

#include "bench/cli/console.h"
#include "bench/cli/study_commands.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

ExitCode verify_command(const StudyOptions& options, Console& console);

}  // namespace gable::bench
