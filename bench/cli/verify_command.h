// `gable verify`: the table, the JSON and the exit code around verify().
#pragma once

#include "bench/cli/console.h"
#include "bench/cli/study_commands.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

ExitCode verify_command(const StudyOptions& options, Console& console);

}  // namespace gable::bench
