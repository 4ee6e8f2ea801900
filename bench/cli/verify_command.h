// `gable verify`: prints verify()'s results as a table, writes the JSON and gives the exit code.
#pragma once

#include <cstdint>

#include "bench/cli/study_commands.h"
#include "bench/console/console.h"
#include "bench/measure/outcome.h"

namespace gable::bench {

ExitCode verify_command(const StudyOptions& options, Console& console);

/// Problem i of `count` has the seed `seed` + i: --random 1 --seed S runs the one of a mismatch again.
struct RandomVerifyOptions {
  int count = 0;
  std::uint64_t seed = 1;
};

ExitCode random_verify_command(const StudyOptions& options, const RandomVerifyOptions& random, Console& console);

}  // namespace gable::bench
