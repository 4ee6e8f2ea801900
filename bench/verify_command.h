// `gable verify`: the table, the JSON and the exit code around verify().
#pragma once

#include "bench/console.h"
#include "bench/outcome.h"
#include "bench/studies.h"

namespace gable::bench {

ExitCode verify_command(const StudyOptions& options, Console& console);

}  // namespace gable::bench
